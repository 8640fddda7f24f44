"""The frames that peers exchange, byte for byte.

A frame is a big-endian uint32 length, a kind byte, for requests and their answers a uint64 correlation id, and the
payload. The length counts everything after itself.
"""

from collections.abc import Sequence
from enum import IntEnum
from struct import Struct

from quorate.kernel.buffers import Buffer
from quorate.transport.peers.errors import PeerProtocolError

Payload = Buffer | Sequence[Buffer]

_HEADER = Struct(">IB")
_CORRELATED_HEADER = Struct(">IBQ")
_CORRELATION_ID = Struct(">Q")
#: What a frame may hold beyond its payload: the kind and the correlation id.
FRAME_OVERHEAD_BYTES = 9


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


def payload_parts(payload: Payload) -> Sequence[Buffer]:
    return (payload,) if isinstance(payload, bytes | bytearray | memoryview) else payload


def encode_frame(kind: FrameKind, parts: Sequence[Buffer] = ()) -> list[Buffer]:
    return [_HEADER.pack(1 + sum(map(len, parts)), kind), *parts]


def encode_correlated(kind: FrameKind, correlation_id: int, parts: Sequence[Buffer]) -> list[Buffer]:
    return [_CORRELATED_HEADER.pack(FRAME_OVERHEAD_BYTES + sum(map(len, parts)), kind, correlation_id), *parts]


def split_kind(frame: memoryview) -> tuple[FrameKind, memoryview]:
    """The kind of a frame, given without its length, and what follows."""
    if not frame:
        raise PeerProtocolError("empty frame")
    try:
        return FrameKind(frame[0]), frame[1:]
    except ValueError:
        raise PeerProtocolError(f"unknown kind of frame: {frame[0]}") from None


def split_correlation_id(body: memoryview) -> tuple[int, memoryview]:
    if len(body) < _CORRELATION_ID.size:
        raise PeerProtocolError("frame ends within its correlation id")
    (correlation_id,) = _CORRELATION_ID.unpack_from(body)
    return correlation_id, body[_CORRELATION_ID.size :]
