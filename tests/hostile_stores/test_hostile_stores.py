"""A short run of what ``make fuzz-store`` does for longer."""

import os
import tempfile
from pathlib import Path

import pytest

from tests.hostile_stores.__main__ import MAX_GROWTH_BYTES
from tests.hostile_stores.operations import OPERATIONS
from tests.hostile_stores.run import Found, fuzz
from tests.hostile_stores.seed_store import SeedStore

HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
pytestmark = pytest.mark.timeout(7200 if HEAVY else 300)


def test_no_mutation_of_a_store_gives_a_traceback_spins_or_touches_what_is_outside(tmp_path: Path) -> None:
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        report = fuzz(Path(folder), seed=1, mutations=100_000 if HEAVY else 500)

    assert report.growth_bytes < MAX_GROWTH_BYTES
    assert len(report.outcomes) > 4, "mutations that nothing notices find nothing"


def test_a_file_that_changes_outside_of_the_store_is_noticed(tmp_path: Path) -> None:
    store = SeedStore(tmp_path)
    (tmp_path / "victim").unlink()

    with pytest.raises(AssertionError, match="outside"):
        store.assert_outside_is_untouched()


def test_a_traceback_is_a_finding_that_can_be_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: SeedStore, random: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("tests.hostile_stores.run.OPERATIONS", {key: [fails] for key in OPERATIONS})

    with pytest.raises(Found, match=r"--seed 1 --first 7 --mutations 1 .* KeyError"):
        fuzz(tmp_path, seed=1, mutations=1, first=7)


def test_a_store_is_put_back_as_it_was(tmp_path: Path) -> None:
    store = SeedStore(tmp_path)
    path = next(iter(store.pristine))
    path.unlink()
    path.mkdir()
    (path.parent / "more").write_bytes(b"")
    other = list(store.pristine)[-1]
    other.write_bytes(b"")

    store.reset()

    assert {each: each.read_bytes() for each in store.folder.rglob("*") if each.is_file()} == store.pristine
