import pytest

from quorate.kernel.errors import KafkaError, QuorateError
from quorate.kernel.ids import NodeId, Term
from quorate.quorum.core.entries import Entry, EntryKind, HardState
from quorate.quorum.raft_storage import LOG_DIRECTORY, RestoredQuorum
from tests.simulation.disk import SimulatedDisk
from tests.unit.quorum.quorum_disk import DATA_DIR, entry, new_disk, open_storage, ready, snapshot


def restart(disk: SimulatedDisk) -> RestoredQuorum:
    """After a power cut: only what was made durable may be counted on."""
    disk.crash()
    return open_storage(disk).restore()


def test_a_new_node_has_voted_for_nobody_and_holds_nothing() -> None:
    assert open_storage(new_disk()).restore() == RestoredQuorum(hard_state=HardState(), snapshot=None, entries=())


def test_term_vote_and_entries_of_every_kind_outlive_a_power_cut() -> None:
    disk = new_disk()
    entries = [entry(0, 1, b"x" * 3_000_000), Entry(entry(1, 1).offset, Term(1), EntryKind.NO_OP), entry(2, 3)]

    open_storage(disk).persist(ready(term=3, vote=7, entries=entries))

    restored = restart(disk)
    assert restored.hard_state == HardState(Term(3), NodeId(7))
    assert restored.entries == tuple(entries)


def test_conflicting_entries_take_the_place_of_those_that_were_there() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(offset, 1) for offset in range(6)]))

    storage.persist(ready(term=2, entries=[entry(3, 2), entry(4, 2)]))

    assert restart(disk).entries == (*(entry(offset, 1) for offset in range(3)), entry(3, 2), entry(4, 2))


def test_entries_may_be_replaced_right_after_a_restart() -> None:
    disk = new_disk()
    open_storage(disk).persist(ready(term=1, entries=[entry(offset, 1) for offset in range(4)]))
    disk.crash()
    storage = open_storage(disk)
    storage.restore()

    storage.persist(ready(term=2, entries=[entry(2, 2)]))

    assert restart(disk).entries == (entry(0, 1), entry(1, 1), entry(2, 2))


def test_entries_behind_an_own_snapshot_go_and_those_after_it_stay() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(offset, 1) for offset in range(6)]))

    storage.store_snapshot(snapshot(4, 1))
    storage.persist(ready(entries=[entry(6, 1)]))

    restored = restart(disk)
    assert restored.snapshot == snapshot(4, 1)
    assert restored.entries == (entry(4, 1), entry(5, 1), entry(6, 1))


def test_entries_replaced_at_the_end_of_a_snapshot_leave_the_log_in_order() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(offset, 1) for offset in range(6)]))
    storage.store_snapshot(snapshot(4, 1))

    storage.persist(ready(term=2, entries=[entry(4, 2), entry(5, 2)]))

    assert restart(disk).entries == (entry(4, 2), entry(5, 2))


def test_a_snapshot_of_the_leader_takes_the_place_of_the_log_which_goes_on_after_it() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(0, 1), entry(1, 1)]))

    storage.persist(ready(term=2, installed=snapshot(10, 2), entries=[entry(10, 2)]))

    restored = restart(disk)
    assert (restored.snapshot, restored.entries) == (snapshot(10, 2), (entry(10, 2),))


def test_a_disk_that_failed_once_is_not_written_to_again_and_can_still_be_closed() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(0, 1)]))
    disk.syncs_fail = True
    with pytest.raises(KafkaError):
        storage.persist(ready(entries=[entry(1, 1)]))
    disk.syncs_fail = False

    with pytest.raises(KafkaError):
        storage.persist(ready(entries=[entry(1, 1)]))
    storage.close()

    assert restart(disk).entries[:1] == (entry(0, 1),)


def test_a_vote_that_was_taken_away_is_missed_lest_the_node_votes_twice() -> None:
    disk = new_disk()
    open_storage(disk).persist(ready(term=4, vote=2, entries=[entry(0, 4)]))
    disk.remove("/data/quorum-state")

    with pytest.raises(QuorateError, match=r"^/data/quorum-state is missing: restore it"):
        open_storage(disk).restore()


def test_a_snapshot_that_was_taken_away_is_missed() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=1, entries=[entry(offset, 1) for offset in range(6)]))
    storage.store_snapshot(snapshot(4, 1))
    disk.remove("/data/quorum-snapshot")

    with pytest.raises(QuorateError, match=r"^/data/quorum-snapshot is missing: restore it"):
        open_storage(disk).restore()


def test_a_log_in_the_folder_of_a_topic_is_moved_at_the_first_start() -> None:
    disk = new_disk()
    open_storage(disk).persist(ready(term=1, entries=[entry(0, 1), entry(1, 1)]))
    disk.rename(f"{DATA_DIR}/{LOG_DIRECTORY}", f"{DATA_DIR}/__cluster_metadata-0")
    disk.sync_directory(DATA_DIR)

    assert restart(disk).entries == (entry(0, 1), entry(1, 1))
    assert restart(disk).entries == (entry(0, 1), entry(1, 1))
    assert "__cluster_metadata-0" not in disk.list_directory(DATA_DIR)


def test_two_metadata_logs_are_refused() -> None:
    disk = new_disk()
    open_storage(disk).persist(ready(term=1, entries=[entry(0, 1)]))
    disk.make_directory(f"{DATA_DIR}/__cluster_metadata-0")

    with pytest.raises(QuorateError, match=r"two metadata logs.*move the other out of the data folder"):
        open_storage(disk)
