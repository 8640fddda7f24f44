"""What a shell must carry out, in the order of the fields."""

import enum

import msgspec

from quorate.kernel.ids import QuorumLeader, Term
from quorate.quorum.core.entries import Entry, HardState, Snapshot
from quorate.quorum.core.messages import AppendRequest, Message
from quorate.quorum.core.outcomes import Outcome


class Role(enum.StrEnum):
    LEARNER = "learner"  # Follows without a vote; also a node that is no member, or not yet.
    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


class QuorumState(msgspec.Struct, frozen=True):
    """Where a node stands. Not durable, and only its own view."""

    role: Role
    term: Term
    leader: QuorumLeader | None
    # This node leads and has applied the first entry of its term, hence all that was committed before.
    can_decide: bool


class Ready(msgspec.Struct, frozen=True, kw_only=True):
    # May go out while the disk still works: a leader need not have an entry itself before it offers it to others.
    early_messages: list[AppendRequest]
    # Make durable what of these three is there, in this order.
    hard_state: HardState | None
    snapshot: Snapshot | None  # Takes the place of log and state machine; the log goes on at its end_offset.
    entries: list[Entry]  # A first offset below the log's end: truncate the log to it, then append.
    # The log has again all that damage took from it. Make durable, after the three, that this is so.
    is_recovered: bool = False
    # Only after all that is durable.
    messages: list[Message]
    # To the state machine, after the snapshot. NO_OP and MEMBERSHIP entries are among them.
    committed: list[Entry]
    finished: list[Outcome]
    quorum_state: QuorumState | None  # None: as before.
