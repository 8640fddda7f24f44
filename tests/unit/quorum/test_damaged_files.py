"""A bit of any file is flipped while the node is down: it starts, has what is sound, and knows what it has lost."""

import errno
from collections.abc import Iterator
from copy import deepcopy
from random import Random
from uuid import UUID

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import HardState, LogPosition
from quorate.quorum.core.log import RaftLog
from quorate.quorum.doubled_file import with_crc_line
from quorate.quorum.identity import settle_identity
from quorate.quorum.raft_storage import LOG_DIRECTORY, RaftStorage, RestoredQuorum
from quorate.records.batch import LEADER_EPOCH_OFFSET
from tests.rot import each_bit_flipped
from tests.simulation.disk import PowerCutError, SimulatedDisk, SimulatedFile, content_of
from tests.unit.quorum.core.test_lost_knowledge import settle
from tests.unit.quorum.quorum_disk import DATA_DIR, MEMBERSHIP, entry, new_disk, open_storage, ready, snapshot

LOG = f"{DATA_DIR}/{LOG_DIRECTORY}"
STATE = f"{DATA_DIR}/quorum-state"
SNAPSHOT = f"{DATA_DIR}/quorum-snapshot"
ACKNOWLEDGED = f"{DATA_DIR}/quorum-acknowledged"
RECOVERY = f"{DATA_DIR}/quorum-recovery"
VOTE = HardState(Term(3), NodeId(2))
ENTRIES = tuple(entry(offset, 1 + offset // 3) for offset in range(7))


def member(*, snapshot_at: int = 0, is_closed: bool = False) -> SimulatedDisk:
    """The disk of a node that has acknowledged seven entries of three terms."""
    disk = new_disk()
    settle(disk)
    storage = open_storage(disk)
    for each in ENTRIES:
        storage.persist(ready(term=each.term, vote=2, entries=[each]))
    if snapshot_at:
        storage.store_snapshot(snapshot(snapshot_at, ENTRIES[snapshot_at - 1].term))
    if is_closed:
        storage.close()
    return disk


def log_file(disk: SimulatedDisk) -> str:
    (path,) = (f"{LOG}/{name}" for name in disk.list_directory(LOG) if name.endswith(".log"))
    return path


def paths(disk: SimulatedDisk) -> Iterator[str]:
    for name in disk.list_directory(DATA_DIR):
        below = disk.list_directory(f"{DATA_DIR}/{name}")
        yield from (f"{DATA_DIR}/{name}/{each}" for each in below) if below else [f"{DATA_DIR}/{name}"]


def is_complete(found: RestoredQuorum) -> bool:
    start = 0 if found.snapshot is None else found.snapshot.meta.end_offset
    return found.entries == ENTRIES[start:]


def check_promises(found: RestoredQuorum) -> None:
    """No other vote than the one given, no entry that was not there, and what is lost is known."""
    assert found.hard_state == VOTE or found.hard_state.term > VOTE.term
    start = 0 if found.snapshot is None else found.snapshot.meta.end_offset
    assert found.entries == ENTRIES[start : start + len(found.entries)]
    if not is_complete(found):
        assert found.lost_log is not None
        assert found.lost_log >= LogPosition(ENTRIES[-1].term, Offset(len(ENTRIES))) or found.lost_log.last_term > 3


def fill(storage: RaftStorage, found: RestoredQuorum) -> None:
    """As the core does once a leader has sent what was lost."""
    log = RaftLog(found.snapshot, found.entries, MEMBERSHIP)
    if found.lost_log is None:
        return
    missing = [*ENTRIES[log.log_end_offset :], entry(7, found.hard_state.term)]
    storage.persist(ready(term=found.hard_state.term, vote=found.hard_state.voted_for, entries=missing, recovered=True))


@pytest.mark.parametrize("is_closed", [False, True], ids=["killed", "closed"])
@pytest.mark.parametrize("snapshot_at", [0, 4])
def test_one_flipped_bit_anywhere_is_found_and_repaired(snapshot_at: int, is_closed: bool) -> None:
    sound = member(snapshot_at=snapshot_at, is_closed=is_closed)
    whole = {path: content_of(sound, path) for path in paths(sound)}
    assert len(whole) >= 6
    for path, content in whole.items():
        for number, damaged in enumerate(each_bit_flipped(content, step=max(1, len(content) // 70))):
            disk = deepcopy(sound)
            disk.replace(path, damaged)

            settle(disk)
            storage = open_storage(disk)
            found = storage.restore()

            where = f"{path}, flip {number}"
            check_promises(found)
            assert found.hard_state == VOTE, where
            if not path.startswith(LOG) or not path.endswith(".log"):
                assert path == SNAPSHOT or is_complete(found), where
            fill(storage, found)
            storage.close()
            again = open_storage(disk)
            assert again.findings == (), where
            assert again.restore().lost_log is None, where
            kept = [each for each in again.restore().entries if each.offset < len(ENTRIES)]
            assert kept == list(ENTRIES[len(ENTRIES) - len(kept) :]), where


def test_many_flips_at_once_break_no_promise() -> None:
    refused = 0
    for seed in range(400):
        random = Random(seed)
        disk = member(snapshot_at=random.choice([0, 4]), is_closed=random.random() < 0.5)
        for _ in range(random.choice([2, 5, 20])):
            path = random.choice([path for path in paths(disk) if content_of(disk, path)])
            disk.rot(path, random.randrange(len(content_of(disk, path))), random.randrange(8))
        try:
            settle(disk)
            storage = open_storage(disk)
        except QuorateError:
            refused += 1
            continue
        found = storage.restore()
        check_promises(found)
        fill(storage, found)
        storage.close()
        assert open_storage(disk).restore().lost_log is None
    assert refused < 12, "only where the node's id, or all that tells the term, is lost in every copy"


def test_entries_before_the_damage_are_kept_and_the_rest_is_set_aside() -> None:
    disk = member()
    content = content_of(disk, log_file(disk))
    disk.replace(log_file(disk), content.replace(b"4 of term", b"5 of term"))

    storage = open_storage(disk)

    found = storage.restore()
    assert found.entries == ENTRIES[:4]
    assert found.lost_log == LogPosition(Term(3), Offset(7))
    assert [(finding.path, finding.is_repaired) for finding in storage.findings] == [(LOG, False)]
    assert LOG_DIRECTORY + ".damaged" in disk.list_directory(DATA_DIR)


def test_the_term_of_an_entry_cannot_be_flipped_unnoticed() -> None:
    """No CRC of the batch covers it, nor its offset."""
    disk = member()
    content = content_of(disk, log_file(disk))
    start_of_4 = content.index((4).to_bytes(8), content.index(b"3 of term"))
    disk.rot(log_file(disk), start_of_4 + LEADER_EPOCH_OFFSET + 3, 0)
    assert len(open_storage(disk).restore().entries) == 4


def test_damage_below_the_snapshot_loses_nothing() -> None:
    disk = member(snapshot_at=4)
    content = content_of(disk, log_file(disk))
    disk.replace(log_file(disk), content.replace(b"1 of term", b"2 of term"))

    storage = open_storage(disk)

    assert storage.restore().lost_log is None
    assert storage.restore().entries == ENTRIES[4:]
    assert [finding.is_repaired for finding in storage.findings] == [True]
    assert open_storage(disk).findings == ()


def test_a_damaged_snapshot_is_lost_with_the_log_that_goes_on_after_it() -> None:
    disk = new_disk()
    storage = open_storage(disk)
    storage.persist(ready(term=2, installed=snapshot(10, 2), entries=[entry(10, 2)]))
    disk.rot(SNAPSHOT, 5, 1)

    found = open_storage(disk).restore()

    assert (found.snapshot, found.entries) == (None, ())
    assert found.lost_log == LogPosition(Term(2), Offset(11))


def test_recovery_goes_on_after_a_crash_at_any_point() -> None:
    """Until everything is there again every start knows how far the log went."""
    lost = LogPosition(ENTRIES[-1].term, Offset(len(ENTRIES)))
    recovered = 0
    for steps in range(1, 120):
        disk = member(is_closed=True)
        disk.rot(log_file(disk), len(content_of(disk, log_file(disk))) // 2, 3)
        disk.steps_until_power_cut = steps
        is_done = False
        try:
            storage = open_storage(disk)
            found = storage.restore()
            for each in ENTRIES[len(found.entries) :]:
                is_last = each is ENTRIES[-1]
                storage.persist(ready(entries=[each], recovered=is_last))
            is_done = True
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        again = open_storage(disk).restore()
        assert is_complete(again) or again.lost_log == lost
        assert not is_done or again.lost_log is None
        recovered += is_done
    assert recovered


def test_both_copies_of_the_vote_damaged_lead_to_a_term_in_which_it_cannot_have_voted() -> None:
    disk = member()
    for position in (30, 4096 + 30):
        disk.rot(STATE, position, 2)
    found = open_storage(disk).restore()
    assert found.hard_state.voted_for is None
    assert found.hard_state.term == VOTE.term + 1_000
    assert is_complete(found)
    assert found.lost_log is None, "the log is sound, so it may vote there"


def test_the_last_term_is_known_also_where_no_entry_was_written_in_it() -> None:
    disk = member()
    open_storage(disk).persist(ready(term=2_000, vote=1))
    for position in (30, 4096 + 30):
        disk.rot(STATE, position, 2)
    assert open_storage(disk).restore().hard_state.term == 3_000


def test_what_was_acknowledged_cannot_be_read_so_a_later_leader_has_to_make_up_for_it() -> None:
    disk = member()
    disk.replace(ACKNOWLEDGED, b"\xff" * len(content_of(disk, ACKNOWLEDGED)))
    storage = open_storage(disk)
    found = storage.restore()
    assert found.hard_state == HardState(Term(4))
    assert found.lost_log == LogPosition(Term(4), Offset(0)), "an entry of a term in which this node accepted nothing"
    disk.crash()
    assert open_storage(disk).restore().lost_log == found.lost_log


def test_a_node_by_itself_has_nobody_to_be_given_its_log_by() -> None:
    disk = member()
    disk.rot(log_file(disk), 100, 1)
    before = list(paths(disk))
    with pytest.raises(QuorateError, match=r"metadata-log is damaged .* no other node has what it held: restore it"):
        open_storage(disk, has_peers=False)
    assert list(paths(disk)) == before


@pytest.mark.parametrize("path", [STATE, ACKNOWLEDGED])
def test_a_node_by_itself_goes_on_where_its_log_is_whole(path: str) -> None:
    disk = member()
    disk.replace(path, b"\xff" * len(content_of(disk, path)))
    found = open_storage(disk, has_peers=False).restore()
    assert is_complete(found)
    assert found.lost_log is None


def test_what_is_missing_is_no_damage() -> None:
    """A log that ends too early at the end of an entry was taken from an older copy, or cut by somebody."""
    disk = member()
    content = content_of(disk, log_file(disk))
    size = len(content) // len(ENTRIES)
    disk.replace(log_file(disk), content[: 5 * size])
    with pytest.raises(QuorateError, match="lacks what this node has acknowledged"):
        open_storage(disk)
    disk.replace(log_file(disk), content[: 5 * size - 3])
    assert len(open_storage(disk).restore().entries) == 4


def test_the_identity_is_made_anew_from_its_copy() -> None:
    sound = new_disk()
    settle(sound)
    for name in ("meta.properties", "meta.properties.copy"):
        path = f"{DATA_DIR}/{name}"
        content = content_of(sound, path)
        for damaged in each_bit_flipped(content, step=max(1, len(content) // 200)):
            disk = deepcopy(sound)
            disk.replace(path, damaged)
            identity = settle_identity(disk, DATA_DIR, NodeId(1), "cluster", no_uuid)
            assert identity.cluster_id == "cluster"
            assert identity.finding is not None
            assert identity.finding.path == path
            assert content_of(disk, path) == content


def no_uuid() -> UUID:
    raise AssertionError("another identity is made up")


def test_an_older_version_of_the_small_files_is_read() -> None:
    disk = member()
    state = b'{"term":3,"voted_for":2}'
    disk.replace(STATE, with_crc_line(state))
    assert open_storage(disk).restore().hard_state == VOTE
    assert open_storage(disk).findings == ()


@pytest.mark.parametrize("path", [f"{LOG}/{0:020d}.log", STATE, ACKNOWLEDGED, SNAPSHOT])
def test_a_sector_that_cannot_be_read_is_damage(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = member(snapshot_at=4)
    for number in range(7, 90):
        open_storage(disk).persist(ready(entries=[entry(number, 3)]))
    read = SimulatedFile.read
    bad = disk.open(path)._content

    def failing(self: SimulatedFile, position: int, length: int) -> bytes:
        if self._content is bad and position < 4096:
            raise OSError(errno.EIO, "Input/output error")
        return read(self, position, length)

    monkeypatch.setattr(SimulatedFile, "read", failing)
    storage = open_storage(disk)
    assert [finding.path for finding in storage.findings] == [LOG if path.startswith(LOG) else path]
    hard_state = storage.restore().hard_state
    assert hard_state == VOTE or hard_state.term > VOTE.term
