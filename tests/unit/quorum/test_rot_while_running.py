"""Bits that flip in the quorum's files while the node runs are found by the next check, and mended from memory."""

from collections.abc import Sequence

import pytest

from quorate.kernel.ids import Offset
from quorate.quorum.core.entries import Entry
from quorate.quorum.doubled_file import Finding
from quorate.quorum.raft_storage import RaftStorage
from quorate.quorum.watched_disk import WatchedDisk
from tests.simulation.disk import PowerCutError, SimulatedDisk, content_of
from tests.unit.quorum.core.test_lost_knowledge import settle
from tests.unit.quorum.quorum_disk import DATA_DIR, entry, new_disk, open_storage, ready, snapshot
from tests.unit.quorum.test_damaged_files import ENTRIES, VOTE, is_complete, paths


def running(disk: SimulatedDisk, *, snapshot_at: int = 0) -> RaftStorage:
    settle(disk)
    storage = open_storage(disk)
    for each in ENTRIES:
        storage.persist(ready(term=each.term, vote=2, entries=[each]))
    if snapshot_at:
        storage.store_snapshot(snapshot(snapshot_at, ENTRIES[snapshot_at - 1].term))
    return storage


def check(storage: RaftStorage, entries: Sequence[Entry]) -> list[Finding]:
    return [finding for path in storage.watched_paths if (finding := storage.check_file(path, entries)) is not None]


@pytest.mark.parametrize("snapshot_at", [0, 4])
def test_every_file_is_checked_and_made_anew(snapshot_at: int) -> None:
    disk = new_disk()
    storage = running(disk, snapshot_at=snapshot_at)
    everything = [path for path in paths(disk) if content_of(disk, path)]
    assert check(storage, ENTRIES[snapshot_at:]) == []
    for path in everything:
        for part in (0.0, 0.35, 0.99):
            if path not in paths(disk):
                continue  # The log was made anew, and starts at the snapshot now.
            disk.rot(path, int(len(content_of(disk, path)) * part), 4)
            found = check(storage, ENTRIES[snapshot_at:])
            assert [finding.path for finding in found] == [path], part
            assert check(storage, ENTRIES[snapshot_at:]) == []

    storage.persist(ready(term=3, vote=2, entries=[entry(7, 3)]))
    storage.close()
    again = open_storage(disk)
    assert again.findings == ()
    assert again.restore().lost_log is None
    assert again.restore().hard_state == VOTE
    assert again.restore().entries == (*ENTRIES[snapshot_at:], entry(7, 3))


def test_a_crash_while_the_log_is_made_anew_lets_nobody_forget_what_it_had() -> None:
    recovering = 0
    for steps in range(1, 40):
        disk = new_disk(steps)
        storage = running(disk)
        storage.close()
        storage = open_storage(disk)
        log = next(path for path in paths(disk) if path.endswith(".log"))
        disk.rot(log, 200, 1)
        disk.steps_until_power_cut = steps
        try:
            assert check(storage, ENTRIES)
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        found = open_storage(disk).restore()
        assert is_complete(found) or found.lost_log is not None
        recovering += found.lost_log is not None
    assert recovering


def test_rot_is_not_taken_for_what_was_written_when_the_log_is_cut() -> None:
    disk = new_disk()
    storage = running(disk)
    log = next(path for path in paths(disk) if path.endswith(".log"))
    disk.rot(log, 100, 1)
    storage.persist(ready(term=4, entries=[entry(5, 4)]))
    found = check(storage, [*ENTRIES[:5], entry(5, 4)])
    assert [finding.path for finding in found] == [log]
    assert open_storage(disk).restore().entries == (*ENTRIES[:5], entry(5, 4))


def test_a_file_that_was_removed_or_cut_is_not_as_it_was_written() -> None:
    disk = new_disk()
    watched = WatchedDisk(disk)
    watched.replace(f"{DATA_DIR}/a", b"content")
    disk.replace(f"{DATA_DIR}/a", b"conten")
    assert not watched.is_as_written(f"{DATA_DIR}/a")
    disk.remove(f"{DATA_DIR}/a")
    assert not watched.is_as_written(f"{DATA_DIR}/a")
    watched.remove(f"{DATA_DIR}/a")
    assert watched.is_as_written(f"{DATA_DIR}/a")


def test_a_mark_of_a_recovery_that_lasts_is_kept() -> None:
    disk = new_disk()
    running(disk).close()
    log = next(path for path in paths(disk) if path.endswith(".log"))
    disk.rot(log, 100, 1)
    storage = open_storage(disk)
    found = storage.restore()
    disk.rot(f"{DATA_DIR}/quorum-recovery", 20, 1)
    disk.rot(next(path for path in paths(disk) if path.startswith(f"{DATA_DIR}/metadata-log/")), 3, 1)

    assert check(storage, found.entries)
    assert check(storage, found.entries) == []

    again = open_storage(disk).restore()
    assert again.lost_log == found.lost_log
    assert again.lost_log is not None
    assert again.lost_log.end_offset == Offset(len(ENTRIES))
