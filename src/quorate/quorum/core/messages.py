"""What the nodes of the quorum say to each other.

Messages may be lost, repeated and reordered; none is answered for the sake of an answer alone. All are msgpack arrays
whose first element says which one it is.
"""

import msgspec

from quorate.kernel.ids import NodeId, Offset, Term
from quorate.quorum.core.entries import Entry, Snapshot


class Envelope(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    term: Term  # The sender's, except in a pre-vote: there it is the term it would campaign in.
    sender: NodeId
    receiver: NodeId


class VoteRequest(Envelope, frozen=True, array_like=True, kw_only=True, tag=0):
    is_pre_vote: bool
    is_transfer: bool  # The leader itself asked for this election: its followers' lease does not count.
    log_end_offset: Offset
    last_term: Term


class VoteResponse(Envelope, frozen=True, array_like=True, kw_only=True, tag=1):
    """A granted pre-vote carries the term asked for, everything else the sender's own."""

    is_pre_vote: bool
    granted: bool


class AppendRequest(Envelope, frozen=True, array_like=True, kw_only=True, tag=2):
    base_offset: Offset  # Of the first entry, or of the one that would come next if there is none.
    previous_term: Term  # Of the entry before base_offset.
    high_watermark: Offset
    entries: tuple[Entry, ...]


class AppendAccepted(Envelope, frozen=True, array_like=True, kw_only=True, tag=3):
    match_end_offset: Offset  # The sender's log equals the leader's up to here, durably.


class AppendRejected(Envelope, frozen=True, array_like=True, kw_only=True, tag=4):
    """The log before base_offset is another one; the logs may agree up to the end offset of the diverging term."""

    base_offset: Offset
    diverging_end_offset: Offset
    diverging_term: Term
    is_recovering: bool = False  # Damage took entries that the sender had accepted.


class Heartbeat(Envelope, frozen=True, array_like=True, kw_only=True, tag=5):
    high_watermark: Offset  # Never beyond what the receiver is known to have.
    read_round: int


class HeartbeatResponse(Envelope, frozen=True, array_like=True, kw_only=True, tag=6):
    read_round: int
    recovered_end_offset: Offset | None = None  # Where a log ends that was damaged and is not as far as it was.


class InstallSnapshot(Envelope, frozen=True, array_like=True, kw_only=True, tag=7):
    snapshot: Snapshot


class TimeoutNow(Envelope, frozen=True, array_like=True, kw_only=True, tag=8):
    """The leader hands over: the receiver campaigns at once."""


class TermNotice(Envelope, frozen=True, array_like=True, kw_only=True, tag=9):
    """Tells a leader of a past term that its term is over."""


FromLeader = AppendRequest | Heartbeat | InstallSnapshot
Message = (
    VoteRequest
    | VoteResponse
    | AppendRequest
    | AppendAccepted
    | AppendRejected
    | Heartbeat
    | HeartbeatResponse
    | InstallSnapshot
    | TimeoutNow
    | TermNotice
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def encode_message(message: Message) -> bytes:
    return _encoder.encode(message)


def decode_message(data: bytes | memoryview) -> Message:
    """Raise one of ``UNREADABLE`` where the bytes are no message."""
    return _decoder.decode(data)
