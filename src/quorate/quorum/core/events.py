"""What can happen to a node of the quorum.

Every event carries the time, in milliseconds of a clock that does not go back. A ticket is the shell's own number for
something it asked for; the outcome that comes with a later Ready names it again.
"""

import msgspec

from quorate.kernel.ids import NodeId, Term
from quorate.quorum.core.entries import Snapshot
from quorate.quorum.core.membership import MembershipChange
from quorate.quorum.core.messages import Message


class Event(msgspec.Struct, frozen=True, kw_only=True):
    now_ms: int


class Tick(Event, frozen=True, kw_only=True):
    """The deadline that the node named has come. Ticking early or often does no harm."""


class MessageReceived(Event, frozen=True, kw_only=True):
    message: Message


class Propose(Event, frozen=True, kw_only=True):
    payload: bytes
    ticket: int
    # The term in which this was decided, where the proposal must not survive a change of leader and back.
    term: Term | None = None


class ProposeMembership(Event, frozen=True, kw_only=True):
    change: MembershipChange
    ticket: int


class ReadIndex(Event, frozen=True, kw_only=True):
    """Ask up to which offset the log must be applied for a linearizable read."""

    ticket: int


class TransferLeadership(Event, frozen=True, kw_only=True):
    target: NodeId
    ticket: int


class PeerDied(Event, frozen=True, kw_only=True):
    """The connection to a peer ended and it refuses a new one: most likely its process died."""

    peer: NodeId


class PeerReachable(Event, frozen=True, kw_only=True):
    """A connection to the peer was made: what is sent to it now arrives."""

    peer: NodeId


class Compact(Event, frozen=True, kw_only=True):
    """The snapshot is durable; the entries it stands for may go. See RaftNode.snapshot_meta."""

    snapshot: Snapshot


RaftEvent = (
    Tick
    | MessageReceived
    | Propose
    | ProposeMembership
    | ReadIndex
    | TransferLeadership
    | PeerDied
    | PeerReachable
    | Compact
)
