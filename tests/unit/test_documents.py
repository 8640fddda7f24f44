"""What the documents name is there: files of the tests, links between pages, results of the benchmarks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text())

    assert [link for link in links if not (page.parent / link).exists()] == []


def test_what_the_page_about_the_tests_names_is_there() -> None:
    tests = ROOT / "tests"
    named = re.findall(r"`([\w/*]+(?:\.py|/))`", (tests / "README.md").read_text())

    assert len(named) > 30
    assert [name for name in named if not _is_there(tests, name)] == []


def _is_there(folder: Path, name: str) -> bool:
    """In the folder itself, or somewhere below it where the row has named its folder already."""
    return any(folder.glob(name.rstrip("/"))) or any(folder.glob(f"**/{name}"))
