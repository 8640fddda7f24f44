"""Holds: the first one counts, every decision is kept, and none is made about a manifest that goes."""

import pytest

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import Mode
from quorate.backup.objects.names import PRUNED_CONTENT
from quorate.backup.objects.stored_documents import decode_sealed, encode_sealed, seal
from quorate.backup.retention.holds import Decision, Hold, NotHeld, Pruning, Release
from tests.unit.backup.backup_runs import BACKUP_ID
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

    kept = [decode_sealed(each, Decision) for each in backup.holds_storage.contents.values()]
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


SEALED = encode_sealed(Hold(since_ms=1, reason="a case"))
DAMAGED = {
    "cut off": SEALED[:-1],
    "a flipped bit": SEALED.replace(b"case", b"cas\x64"),
    "not sealed": b'{"type":"release","released_ms":1}',
    "empty": b"",
    "no text": seal(b'{"type":"hold","since_ms":1,"reason":"\xff"}'),
    "a time that is none": seal(b'{"type":"hold","since_ms":1000000000000000000}'),
    "nested too deeply": seal(b'{"type":"hold","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "a prune of what is no segment": encode_sealed(Pruning(objects={"manifests/000002.json": 1})),
    "a prune of what is outside": encode_sealed(Pruning(objects={"../../victim": 1})),
}


def damaged_backup(kind: str) -> RetainedBackup:
    backup = backup_of(3)
    backup.holds_storage.store("000001/0001.json", DAMAGED[kind])
    return backup


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_decision_is_named_with_what_to_do(kind: str) -> None:
    (damaged,) = damaged_backup(kind).holds.damages()

    assert damaged.name == f"{BACKUP_ID}~holds/000001/0001.json"
    assert "000001/0001.json is damaged: " in damaged.message
    assert f"quorate hold --backup-id {BACKUP_ID} --manifest 1" in damaged.message
    assert damaged.message.isprintable()


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_decision_keeps_its_manifest_and_no_other_from_a_prune(kind: str) -> None:
    backup = damaged_backup(kind)

    report = backup.prune(keep_last=1)

    assert report.pruned == [2]
    assert list(backup.manifests()) == [1, 3]
    assert "damaged: hold or release it anew" in str(report.kept[0].kept_because)
    backup.assert_whole()
    with pytest.raises(BackupError, match=r"manifest 1 of .* is kept because .* nothing was deleted"):
        backup.prune(drops_all=True)


def test_a_damaged_decision_does_not_keep_a_restore_from_reading() -> None:
    backup = damaged_backup("a flipped bit")

    backup.begin_restore(1)

    assert list(backup.reading.values()) == [1]


def test_a_manifest_with_a_damaged_decision_can_be_held_or_released_anew() -> None:
    held, released = damaged_backup("a flipped bit"), damaged_backup("cut off")

    held.hold(1)
    assert held.holds.damages() == []
    assert held.prune(keep_last=1).pruned == [2]

    assert released.holds.release(1, now_ms=5) is not None
    assert released.holds.damages() == []
    assert released.prune(keep_last=1).pruned == [1, 2]


def test_a_damaged_decision_about_a_pruned_manifest_goes_and_leaves_its_objects_to_the_orphan_collection() -> None:
    backup = RetainedBackup()
    backup.grow(2, Mode.SNAPSHOT)
    only_of_first = backup.manifests()[1].object_names() - backup.manifests()[2].object_names()
    backup.storage.store("manifests/000001.json", PRUNED_CONTENT)
    backup.holds_storage.store("000001/0001.json", DAMAGED["cut off"])

    backup.prune(keep_last=1)

    assert backup.holds_storage.contents == {}
    assert backup.orphans() == only_of_first != set()
    backup.assert_whole()


@pytest.mark.parametrize("name", ["0000001/0001.json", "000001/00001.json", f"{10**30}/0001.json", "000001/0.json"])
def test_what_has_no_name_of_a_decision_is_none(name: str) -> None:
    backup = backup_of()
    backup.holds_storage.store(name, encode_sealed(Hold(since_ms=1)))

    assert backup.holds.decisions() == {}
