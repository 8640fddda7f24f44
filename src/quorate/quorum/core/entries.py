"""What the quorum's log is made of, and what a node must have on its disk.

The log is a Kafka partition's: an entry is one record, its term the leader epoch, its place the offset. Offsets start
at 0 and are dense.
"""

import enum

import msgspec

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.membership import Membership

NO_TERM = Term(0)  # Before the first election; no entry has it.


class EntryKind(enum.IntEnum):
    NO_OP = 0  # The first entry of every leader: what it commits commits all before it.
    COMMAND = 1
    MEMBERSHIP = 2  # The payload is an encoded Membership, which holds from the moment the entry is appended.


class Entry(msgspec.Struct, frozen=True, array_like=True):
    offset: Offset
    term: Term
    kind: EntryKind
    payload: bytes = b""


class HardState(msgspec.Struct, frozen=True):
    """What a node must not forget, lest it votes twice in a term."""

    term: Term = NO_TERM
    voted_for: NodeId | None = None


class LogPosition(msgspec.Struct, frozen=True, order=True):
    """Where a log ends. The later one of two lacks nothing of what the earlier one had that is committed."""

    last_term: Term = NO_TERM  # Of the entry before the end. Counts first (paper, section 5.4.1).
    end_offset: Offset = Offset(0)


class SnapshotMeta(msgspec.Struct, frozen=True, array_like=True):
    """Which prefix of the log a snapshot stands for."""

    end_offset: Offset  # The first offset that is not in the snapshot.
    last_term: Term  # Of the entry before end_offset.
    membership: Membership  # As of end_offset.


class Snapshot(msgspec.Struct, frozen=True, array_like=True):
    meta: SnapshotMeta
    payload: bytes  # The state machine's; opaque here.


class InvariantBroken(Exception):
    """Something that Raft rules out has happened. The node must stop: going on could lose committed entries."""
