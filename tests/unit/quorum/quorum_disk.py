"""A node's quorum files on a simulated disk, and short ways to write what the quorum asks for."""

from collections.abc import Iterable
from random import Random

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, EntryKind, HardState, Snapshot, SnapshotMeta
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.ready import Ready
from quorate.quorum.raft_storage import RaftStorage
from tests.simulation.disk import SimulatedDisk

DATA_DIR = "/data"
MEMBERSHIP = Membership.of([Member(NodeId(1), "", is_voter=True)])


class StoppedClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


def new_disk(seed: int = 0) -> SimulatedDisk:
    """With a data folder that outlives every crash, as a node makes it before anything else."""
    disk = SimulatedDisk(Random(seed))
    disk.make_directory(DATA_DIR)
    disk.sync_directory("/")
    return disk


def open_storage(disk: SimulatedDisk, *, has_peers: bool = True) -> RaftStorage:
    return RaftStorage(disk, DATA_DIR, StoppedClock(), has_peers=lambda membership, is_whole: has_peers)


def entry(offset: int, term: int, payload: bytes = b"") -> Entry:
    return Entry(Offset(offset), Term(term), EntryKind.COMMAND, payload or b"%d of term %d" % (offset, term))


def snapshot(end_offset: int, last_term: int) -> Snapshot:
    return Snapshot(SnapshotMeta(Offset(end_offset), Term(last_term), MEMBERSHIP), b"all before %d" % end_offset)


def ready(
    *,
    term: int | None = None,
    installed: Snapshot | None = None,
    entries: Iterable[Entry] = (),
    vote: int | None = None,
    committed: Iterable[Entry] = (),
    recovered: bool = False,
) -> Ready:
    return Ready(
        early_messages=[],
        hard_state=None if term is None else HardState(Term(term), None if vote is None else NodeId(vote)),
        snapshot=installed,
        entries=list(entries),
        is_recovered=recovered,
        messages=[],
        committed=list(committed),
        finished=[],
        quorum_state=None,
    )
