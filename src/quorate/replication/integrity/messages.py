"""What a node asks of another replica to repair its own, and what that answers."""

from collections.abc import Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, whatever the standard library calls it
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ports import Buffer
from quorate.transport.peers.errors import PeerProtocolError


class ReadRange(msgspec.Struct, frozen=True, array_like=True):
    """The batches that have offsets from ``first_offset`` up to ``end_offset``; as many as fit into an answer."""

    topic_id: UUID
    partition: int
    first_offset: int
    end_offset: int


_ERROR_CODE = Struct(">h")
_ERROR_CODES = frozenset(ErrorCode)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[ReadRange] = msgspec.msgpack.Decoder(ReadRange)


def encode_request(request: ReadRange) -> bytes:
    return _encoder.encode(request)


def decode_request(payload: Buffer) -> ReadRange:
    """Raises ``PeerProtocolError`` where no sound node asks so."""
    try:
        request = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        raise PeerProtocolError(f"malformed read of a range: {error}") from None
    if not 0 <= request.first_offset < request.end_offset < 2**63 or not 0 <= request.partition < 2**31:
        raise PeerProtocolError(f"a read of offsets {request.first_offset} to {request.end_offset}")
    return request


def encode_answer(error: ErrorCode, records: Buffer = b"") -> Sequence[Buffer]:
    """No error and no records: there are none in the range."""
    return [_ERROR_CODE.pack(error), records]


def decode_answer(payload: memoryview) -> tuple[ErrorCode, bytes]:
    """Raises ``PeerProtocolError`` where it is no answer."""
    try:
        (code,) = _ERROR_CODE.unpack_from(payload)
    except StructError as error:
        raise PeerProtocolError(f"malformed answer to a read of a range: {error}") from None
    if code not in _ERROR_CODES:
        raise PeerProtocolError("malformed answer to a read of a range: there is no such error")
    return ErrorCode(code), bytes(payload[_ERROR_CODE.size :])
