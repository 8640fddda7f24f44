"""Tables as aligned text, the same on a terminal and in a pipe."""

from collections.abc import Sequence


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [list(headings), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
