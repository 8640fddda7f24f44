"""What commands say on a terminal, the same in a pipe, and what they ask there."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from quorate.kernel.errors import QuorateError

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [list(headings), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in texts) for column in range(len(headings))]
    for row in texts:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """1 topic, 2 topics; 1 copy, 2 copies where the plural is given."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def tell(line: str) -> None:
    """Beside the output, for whoever watches."""
    print(f"quorate: {line}", file=sys.stderr, flush=True)


def node_list(nodes: Sequence[int]) -> str:
    return ",".join(str(node) for node in nodes) or "-"


def confirm(question: str, *, yes: bool) -> None:
    """Returns if the user agrees. A script has nobody to ask: it must say so beforehand."""
    if yes:
        return
    if not _can_answer():
        raise QuorateError(f"this asks first ({question}), and there is no terminal to answer at: add --yes")
    if not typer.confirm(question):
        print("nothing was changed")
        raise typer.Exit(1)


def _can_answer() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()
