"""Writes what the last runs of tests have proven into the table of docs/compatibility.md, between its two marks.

A row whose tests have not run stays; one whose test is gone goes.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.proofs import RESULTS, claimed, merged, read_results, rows_of_page, with_rows  # noqa: E402 - found by the line above

PAGE = ROOT / "docs" / "compatibility.md"


def main() -> int:
    page = PAGE.read_text()
    claims = set(claimed())
    rows = merged(rows_of_page(page), read_results())
    PAGE.write_text(with_rows(page, [row for row in rows if (row.test, row.feature) in claims]))
    RESULTS.unlink(missing_ok=True)  # The page has them now, and must not get them back when they are old.
    return 0


if __name__ == "__main__":
    sys.exit(main())
