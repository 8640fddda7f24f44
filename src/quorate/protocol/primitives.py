"""Functions that specialised decoders and encoders call at run time: too rare or too long to be inlined."""

from functools import lru_cache
from typing import Final, NoReturn
from uuid import UUID

from quorate.kernel.ports import Buffer
from quorate.protocol.errors import ProtocolError, TooManyElements

MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka holds strings to this length in every version, although a flexible one could write more."""

ONE_BYTE: Final = tuple(bytes([value]) for value in range(128))
"""The unsigned varints of one byte, indexed by value."""


def read_unsigned_varint(frame: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it. At most 5 bytes and 32 bits; the frame's end raises IndexError."""
    value = 0
    for shift in (0, 7, 14, 21, 28):
        byte = frame[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise ProtocolError("a varint is longer than 32 bits")


def write_unsigned_varint(value: int) -> bytes:
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tagged_fields(frame: Buffer, position: int) -> int:
    """The position after a section of tagged fields, none of which this version knows (KIP-482 lets us drop them)."""
    count, position = read_unsigned_varint(frame, position)
    previous_tag = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(frame, position)
        size, position = read_unsigned_varint(frame, position)
        position += size
        if tag <= previous_tag or position > len(frame):
            refuse_tag(tag)
        previous_tag = tag
    return position


@lru_cache(maxsize=4096)
def read_uuid(raw: bytes) -> UUID:
    """Making a UUID is slow and the same few topic ids come with every fetch."""
    return UUID(bytes=raw)


def refuse_length(field: str, length: int) -> NoReturn:
    raise ProtocolError(f"{field} has length {length}, which is null where that is not allowed, or beyond the frame")


def refuse_elements(field: str) -> NoReturn:
    raise TooManyElements(f"{field} has more elements than a request may have")


def refuse_string(field: str) -> NoReturn:
    raise ProtocolError(f"{field} is longer than {MAX_STRING_BYTES} bytes")


def refuse_tag(tag: int) -> NoReturn:
    raise ProtocolError(f"tagged field {tag} is out of order, or has another size than declared")


def refuse_null_marker(field: str, marker: int) -> NoReturn:
    raise ProtocolError(f"{field} must say with -1 or 1 whether it is null, not with {marker}")


def refuse_value(message: str, field: str, version: int) -> NoReturn:
    raise ProtocolError(f"{message} version {version} cannot carry {field}, which has not its default value")
