"""The frames between peers: their layout, their kinds, and the channels that say what a frame is for.

A frame is a big-endian uint32 length, a kind byte, for requests and their answers a uint64 correlation id, for messages
and requests a channel byte, and the payload. The length counts everything after itself.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from quorate.kernel.ports import Buffer
from quorate.transport.peers.errors import PeerProtocolError

Payload = Buffer | Sequence[Buffer]

_HEADER = Struct(">IB")
_MESSAGE_HEADER = Struct(">IBB")
_REQUEST_HEADER = Struct(">IBQB")
_ANSWER_HEADER = Struct(">IBQ")
_CORRELATION_ID = Struct(">Q")
#: What a frame may hold beyond its payload: the kind, the correlation id and the channel.
FRAME_OVERHEAD_BYTES = 10


class FrameKind(IntEnum):
    # From 1 on: a Kafka request, sent here by mistake, begins with a zero byte.
    HELLO = 1
    REJECT = 2
    MESSAGE = 3
    REQUEST = 4
    RESPONSE = 5
    #: The request's handler failed; the payload says why, for people.
    FAILURE = 6
    PING = 7
    PONG = 8
    #: A step of the handshake, which is before the hello.
    AUTHENTICATE = 9


class Channel(IntEnum):
    """Who a message or a request is for."""

    #: Raft's messages.
    RAFT = 1
    #: Requests to the quorum leader.
    CONTROLLER = 2
    #: Fetches of followers.
    REPLICA_FETCH = 3
    #: Reads of records that are damaged at the asker.
    READ_RANGE = 4
    #: Requests of Kafka's own protocol.
    KAFKA = 5


_KINDS = {int(kind): kind for kind in FrameKind}
_CHANNELS = {int(channel): channel for channel in Channel}


def payload_parts(payload: Payload) -> Sequence[Buffer]:
    return (payload,) if isinstance(payload, bytes | bytearray | memoryview) else payload


def encode_frame(kind: FrameKind, parts: Sequence[Buffer] = ()) -> list[Buffer]:
    return [_HEADER.pack(1 + sum(map(len, parts)), kind), *parts]


def encode_message(channel: Channel, parts: Sequence[Buffer]) -> list[Buffer]:
    return [_MESSAGE_HEADER.pack(2 + sum(map(len, parts)), FrameKind.MESSAGE, channel), *parts]


def encode_request(correlation_id: int, channel: Channel, parts: Sequence[Buffer]) -> list[Buffer]:
    return [_REQUEST_HEADER.pack(10 + sum(map(len, parts)), FrameKind.REQUEST, correlation_id, channel), *parts]


def encode_answer(kind: FrameKind, correlation_id: int, parts: Sequence[Buffer]) -> list[Buffer]:
    return [_ANSWER_HEADER.pack(9 + sum(map(len, parts)), kind, correlation_id), *parts]


def split_kind(frame: memoryview) -> tuple[FrameKind, memoryview]:
    """The kind of a frame, given without its length, and what follows."""
    if not frame:
        raise PeerProtocolError("empty frame")
    kind = _KINDS.get(frame[0])
    if kind is None:
        raise PeerProtocolError(f"unknown kind of frame: {frame[0]}")
    return kind, frame[1:]


def split_correlation_id(body: memoryview) -> tuple[int, memoryview]:
    if len(body) < _CORRELATION_ID.size:
        raise PeerProtocolError("frame ends within its correlation id")
    (correlation_id,) = _CORRELATION_ID.unpack_from(body)
    return correlation_id, body[_CORRELATION_ID.size :]


def split_channel(body: memoryview) -> tuple[Channel, memoryview]:
    if not body:
        raise PeerProtocolError("frame ends before its channel")
    channel = _CHANNELS.get(body[0])
    if channel is None:
        raise PeerProtocolError(f"unknown channel: {body[0]}")
    return channel, body[1:]
