"""What the package says of itself where it is published."""

import re
import tomllib
from pathlib import Path

import pytest
from trove_classifiers import classifiers

import quorate
from hatch_metadata import with_absolute_links

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE = "https://host/blob/v1/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("see [docs](docs/x.md#part).", f"see [docs]({BASE}docs/x.md#part)."),
        ("[a](b) and [c](d/)", f"[a]({BASE}b) and [c]({BASE}d/)"),
        ("[a](https://other/x) [b](#below) [c](mailto:x@y)", "[a](https://other/x) [b](#below) [c](mailto:x@y)"),
        ("before [a](b)\n```python\nx[0](y)\n```\nafter [a](b)", None),
    ],
)
def test_relative_links_become_absolute_but_in_code(text: str, expected: str | None) -> None:
    if expected is None:
        expected = f"before [a]({BASE}b)\n```python\nx[0](y)\n```\nafter [a]({BASE}b)"
    assert with_absolute_links(text, BASE) == expected


def test_relative_links_of_the_readme_lead_to_files() -> None:
    absolute = with_absolute_links((ROOT / "README.md").read_text(), BASE)
    paths = re.findall(re.escape(f"]({BASE}") + r"([^)#]+)", absolute)
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_classifiers_are_known() -> None:
    assert set(PROJECT["classifiers"]) <= classifiers


def test_version_is_the_same_wherever_it_stands() -> None:
    assert PROJECT["version"] == quorate.__version__


def test_changelog_begins_with_what_is_unreleased_or_with_this_version() -> None:
    titles = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] in ("Unreleased", quorate.__version__)
