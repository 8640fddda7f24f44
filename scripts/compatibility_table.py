"""Writes what the tests of the ecosystem have shown into the table of docs/compatibility.md, between its two marks."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.ecosystem.proofs import RESULTS, ProofResult, read_results  # noqa: E402 - found through the line above

PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- ecosystem: begin -->", "<!-- ecosystem: end -->"


def main() -> int:
    results = read_results()
    if not results:
        print(f"{RESULTS.relative_to(ROOT)} has no results: run tests/ecosystem first", file=sys.stderr)
        return 1
    before, begin, rest = PAGE.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        print(f"{PAGE.name} lacks the marks {BEGIN} and {END}", file=sys.stderr)
        return 1
    PAGE.write_text("".join((before, begin, "\n", *table(results), end, after)))
    return 0


def table(results: list[ProofResult]) -> list[str]:
    rows = [f"| {each.client} | {each.version} | {each.feature} | {each.result} |\n" for each in results]
    return ["| software | version | what is run | result |\n", "|---|---|---|---|\n", *rows]


if __name__ == "__main__":
    sys.exit(main())
