"""The walks of docs/architecture.md: every hop that a page names is in the code."""

import importlib
import re
from pathlib import Path

import pytest

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "architecture.md"
_WALK = re.compile(r"^```walk (?P<name>[\w-]+)\n(?P<hops>.*?)^```$", re.MULTILINE | re.DOTALL)


def _hops() -> list[tuple[str, str]]:
    text = ARCHITECTURE.read_text()
    return [
        (walk["name"], line.split()[0]) for walk in _WALK.finditer(text) for line in walk["hops"].splitlines() if line
    ]


@pytest.mark.parametrize(("walk", "hop"), _hops(), ids=lambda value: value)
def test_a_hop_of_a_walk_names_a_function_that_exists(walk: str, hop: str) -> None:
    module, _, qualified_name = hop.partition(":")
    found: object = importlib.import_module(f"quorate.{module}")
    for name in qualified_name.split("."):
        assert hasattr(found, name), f"the walk {walk} names {hop}, which is not there"
        found = getattr(found, name)
    assert callable(found) or isinstance(found, property), f"{hop} is no function"


def test_the_walks_of_a_record_a_backup_and_a_restore_are_written() -> None:
    assert {walk for walk, _ in _hops()} >= {"produce", "backup", "restore"}
