"""Holds: the first one counts, every decision is kept, and none is made about a manifest that goes."""

import msgspec
import pytest

from quorate.backup.errors import BackupError
from quorate.backup.holds import Decision, Hold, NotHeld, Pruning, Release
from tests.unit.backup.retained_backups import RetainedBackup


def backup_of(runs: int = 2) -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(runs)
    return backup


def test_a_second_hold_leaves_the_first_as_it_is() -> None:
    backup = backup_of()
    first = backup.holds.hold(backup.catalog, 1, Hold(since_ms=1, reason="first"))

    assert backup.holds.hold(backup.catalog, 1, Hold(since_ms=2, reason="second")) == first
    assert backup.holds.holds() == {1: first}


def test_every_decision_about_a_manifest_stays_on_record_while_it_is_there() -> None:
    backup = backup_of()
    backup.hold(1)
    backup.holds.release(1, now_ms=5)
    backup.hold(1)

    kept = [msgspec.json.decode(each, type=Decision) for each in backup.holds_storage.contents.values()]
    assert [type(each) for each in kept] == [Hold, Release, Hold]


def test_what_is_not_held_cannot_be_released() -> None:
    backup = backup_of()

    assert backup.holds.release(1, now_ms=5) is None
    assert backup.holds_storage.contents == {}


@pytest.mark.parametrize("number", [0, 3])
def test_a_manifest_that_is_not_there_cannot_be_held(number: int) -> None:
    backup = backup_of()

    with pytest.raises(NotHeld, match=f"has no manifest {number}"):
        backup.hold(number)
    assert backup.holds_storage.contents == {}


def test_a_manifest_that_is_being_pruned_cannot_be_held_and_a_held_one_not_pruned() -> None:
    backup = backup_of()
    assert backup.holds.begin_pruning(1, {})
    with pytest.raises(NotHeld, match="is being pruned"):
        backup.hold(1)
    backup.hold(2)

    assert not backup.holds.begin_pruning(2, {})
    assert backup.holds.decisions() == {1: Pruning(), 2: Hold(since_ms=1, reason="a case")}


def test_a_decision_that_cannot_be_read_stops_a_prune() -> None:
    backup = backup_of()
    backup.holds_storage.store("000001/0001.json", b"{")

    with pytest.raises(BackupError, match=r"000001/0001\.json cannot be read"):
        backup.prune(keep_last=1)
    assert list(backup.manifests()) == [1, 2]
