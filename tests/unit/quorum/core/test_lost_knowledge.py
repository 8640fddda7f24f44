"""A node that has lost what it acknowledged does not start, and one that has acknowledged nothing always does."""

from copy import deepcopy
from uuid import UUID

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.quorum.acknowledged import FILE_NAME
from quorate.quorum.identity import settle_identity
from quorate.quorum.raft_storage import LOG_DIRECTORY
from tests.simulation.disk import PowerCutError, SimulatedDisk, content_of
from tests.unit.quorum.quorum_disk import DATA_DIR, entry, new_disk, open_storage, ready, snapshot

LOG = f"{DATA_DIR}/{LOG_DIRECTORY}"
STATE = f"{DATA_DIR}/quorum-state"
ACKNOWLEDGED = f"{DATA_DIR}/{FILE_NAME}"
META = f"{DATA_DIR}/meta.properties"


def settle(disk: SimulatedDisk) -> None:
    settle_identity(disk, DATA_DIR, NodeId(1), "cluster", lambda: UUID(int=5))


def member(*, entries: int = 4) -> SimulatedDisk:
    """The disk of a node that has acknowledged so many entries, and was killed."""
    disk = new_disk()
    settle(disk)
    storage = open_storage(disk)
    storage.restore()
    for offset in range(entries):
        storage.persist(ready(term=1, vote=1, entries=[entry(offset, 1)]))
    return disk


def make_partition(disk: SimulatedDisk) -> None:
    disk.make_directory(f"{DATA_DIR}/orders-0")
    disk.sync_directory(DATA_DIR)


def copied(disk: SimulatedDisk) -> object:
    return deepcopy(disk._folder(DATA_DIR).now[LOG_DIRECTORY])  # type: ignore[union-attr]


def restore_copy(disk: SimulatedDisk, copy: object) -> None:
    folder = disk._folder(DATA_DIR)
    assert folder is not None
    folder.change({LOG_DIRECTORY: copy})  # type: ignore[dict-item]
    disk.sync_directory(DATA_DIR)


def refusal(disk: SimulatedDisk) -> str:
    before = disk.list_directory(DATA_DIR)
    with pytest.raises(QuorateError) as refused:
        open_storage(disk).restore()
    assert disk.list_directory(DATA_DIR) == before, "a refused start leaves everything as it was"
    sentence = str(refused.value)
    assert "restore it, or remove this node and add it anew" in sentence
    return sentence


def test_a_log_that_was_removed_is_missed() -> None:
    disk = member()
    disk.remove_tree(LOG)
    assert f"{LOG} is missing" in refusal(disk)
    assert f"{LOG} is missing" in refusal(disk), "the first refusal must not leave an empty log behind"


def test_a_log_that_was_emptied_is_missed() -> None:
    disk = member()
    disk.remove_tree(LOG)
    disk.make_directory(LOG)
    assert f"{LOG} is empty" in refusal(disk)


def test_a_log_restored_from_an_older_copy_is_known_as_such() -> None:
    disk = member(entries=3)
    copy = copied(disk)
    open_storage(disk).persist(ready(entries=[entry(3, 1)]))
    restore_copy(disk, copy)
    assert "ends at offset 3 and lacks what this node has acknowledged, up to offset 4 in term 1" in refusal(disk)


def test_a_log_of_another_history_is_known_as_such() -> None:
    disk, other = member(), new_disk()
    open_storage(other).persist(ready(term=2, entries=[entry(offset, 2) for offset in range(6)]))
    restore_copy(disk, copied(other))
    assert "lacks what this node has acknowledged" in refusal(disk)


def test_a_snapshot_does_not_stand_for_what_came_after_it() -> None:
    disk = member(entries=6)
    storage = open_storage(disk)
    storage.restore()
    storage.store_snapshot(snapshot(4, 1))
    disk.remove_tree(LOG)
    disk.make_directory(LOG)
    assert "ends at offset 4" in refusal(disk)


def test_a_vote_that_was_removed_or_is_older_than_the_log_is_missed() -> None:
    disk = member()
    old = content_of(disk, STATE)
    open_storage(disk).persist(ready(term=2, vote=1, entries=[entry(4, 2)]))
    disk.replace(STATE, old)
    assert f"{STATE} is older than {LOG}, so that this node could vote twice" in refusal(disk)
    disk.remove(STATE)
    assert f"{STATE} is missing" in refusal(disk)


@pytest.mark.parametrize("sign", ["meta.properties", "partitions"])
def test_whatever_else_was_removed_one_sign_of_membership_is_enough(sign: str) -> None:
    disk = member()
    if sign == "partitions":
        make_partition(disk)
        disk.remove(META)
        settle(disk)
    for path in (STATE, ACKNOWLEDGED):
        disk.remove(path)
    disk.remove_tree(LOG)
    assert f"{LOG} is missing" in refusal(disk)
    disk.make_directory(LOG)
    assert f"{LOG} is empty" in refusal(disk)


def test_a_folder_of_an_earlier_version_goes_on() -> None:
    disk = member()
    disk.remove(ACKNOWLEDGED)
    disk.remove(META)
    settle(disk)

    storage = open_storage(disk)
    assert len(storage.restore().entries) == 4
    storage.persist(ready(entries=[entry(4, 1)]))

    disk.remove_tree(LOG)
    assert f"{LOG} is missing" in refusal(disk)
    assert b"joined=true" in content_of(disk, META)


def test_a_first_start_that_is_cut_short_anywhere_can_be_repeated() -> None:
    for steps in range(1, 60):
        disk = new_disk(steps)
        settle(disk)
        disk.steps_until_power_cut = steps
        try:
            storage = open_storage(disk)
            storage.restore()
            storage.persist(ready(term=1, vote=1))
            storage.persist(ready(entries=[entry(0, 1)]))
            storage.persist(ready(term=2, entries=[entry(0, 2)]))
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        settle(disk)
        open_storage(disk).restore()


def test_a_node_that_voted_and_acknowledged_nothing_starts() -> None:
    disk = new_disk()
    settle(disk)
    storage = open_storage(disk)
    storage.restore()
    storage.persist(ready(term=3, vote=2))
    disk.crash()
    assert open_storage(disk).restore().hard_state.voted_for == 2


def test_entries_may_all_be_given_up_for_those_of_another_leader() -> None:
    left_empty = 0
    for steps in range(1, 30):
        disk = member(entries=2)
        storage = open_storage(disk)
        storage.restore()
        disk.steps_until_power_cut = steps
        try:
            storage.persist(ready(term=2, entries=[entry(0, 2)]))
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        left_empty += open_storage(disk).restore().entries == ()
    assert left_empty, "the cut came between giving up and taking over"


def test_what_is_committed_is_never_given_up() -> None:
    """The others have formed a cluster anew: their log is another one, and this node's may be the last of the old."""
    disk = member()
    storage = open_storage(disk)
    storage.restore()
    storage.persist(ready(entries=[entry(4, 1)], committed=[entry(3, 1)]))
    storage.close()

    again = open_storage(disk)
    again.restore()
    with pytest.raises(QuorateError, match="formed a cluster anew; stop them"):
        again.persist(ready(term=9, entries=[entry(3, 9)]))
    with pytest.raises(QuorateError, match="formed a cluster anew; stop them"):
        again.persist(ready(term=9, installed=snapshot(2, 9)))
    again.persist(ready(term=9, entries=[entry(4, 9)]))

    assert open_storage(disk).restore().entries[3:] == (entry(3, 1), entry(4, 9))


def test_a_torn_line_is_passed_over() -> None:
    disk = member()
    whole = content_of(disk, ACKNOWLEDGED)
    for cut in range(1, len(whole.splitlines()[-1])):
        disk.replace(ACKNOWLEDGED, whole[:-cut])
        storage = open_storage(disk)
        assert len(storage.restore().entries) == 4
        assert storage.findings == ()


def test_the_file_does_not_grow_for_ever_and_costs_no_sync_of_its_own() -> None:
    disk = member(entries=1)
    storage = open_storage(disk)
    storage.restore()
    storage.persist(ready(entries=[entry(1, 1)]))
    syncs = 0

    def count() -> None:
        nonlocal syncs
        syncs += 1

    disk.while_syncing = count
    for offset in range(2, 500):
        storage.persist(ready(entries=[entry(offset, 1)]))
    assert syncs == 498, "one for each append to the log"
    disk.while_syncing = lambda: None
    for offset in range(500, 2500):
        storage.persist(ready(entries=[entry(offset, 1)]))
    assert len(content_of(disk, ACKNOWLEDGED).splitlines()) <= 1_000
