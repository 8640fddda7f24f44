"""Message sets of formats 0 and 1, from before record batches: read, and rebuilt as a batch of magic 2.

A message set is messages in a row, each with its own CRC32. Compression wraps a whole set into the value of one
message, whose offset is that of the last message inside. The offsets inside are absolute in format 0; in format 1 they
count from the first, so that a broker need not compress again.

Format 0 computed the header checksum of an LZ4 frame over the frame's magic number too, against the LZ4 specification,
and Java clients keep doing so for that format. Decoders refuse such frames, so the checksum is put right before
decoding.
"""

import struct
import zlib
from collections.abc import Iterator

import msgspec

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import COMPRESSION_MASK, LOG_OVERHEAD_BYTES, MAGIC, TIMESTAMP_TYPE_MASK, Compression
from quorate.records.builder import build_batch
from quorate.records.compression import DEFAULT_LIMIT_BYTES, decompress
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP, Record

_ENTRY = struct.Struct(">qi")  # Offset and length: what record batches begin with, too.
_START = struct.Struct(">Ibb")  # CRC, magic, attributes.
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CRC_SIZE_BYTES = 4
_NULL_LENGTH = -1

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_MAGIC_BYTES = 4
_LZ4_CONTENT_SIZE = 0x08
_LZ4_DICTIONARY_ID = 0x01

# xxHash32, as the checksum has it.
_XXHASH_MASK = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = (
    2654435761,
    2246822519,
    3266489917,
    668265263,
    374761393,
)
_UINT32 = struct.Struct("<I")


class LegacyMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message as it stands in its set; a wrapper, where ``compression`` is not none."""

    offset: Offset
    magic: int
    attributes: int
    timestamp: int
    key: bytes | None
    value: bytes | None

    @property
    def compression(self) -> Compression:
        codec = self.attributes & COMPRESSION_MASK
        if codec > Compression.LZ4:
            raise CorruptBatch(f"message format {self.magic} has no compression codec {codec}")
        return Compression(codec)

    @property
    def has_log_append_time(self) -> bool:
        return self.attributes & TIMESTAMP_TYPE_MASK != 0


def iterate_legacy_records(buffer: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """Yield every record of a message set, those inside wrappers too, with absolute offsets.

    A partial message at the end is passed over, since fetched bytes may end in one.
    """
    for message in _iterate_messages(bytes(buffer), strict=False):
        if message.compression is Compression.NONE:
            yield _as_record(message)
        else:
            yield from _unwrap(message, limit_bytes)


def convert_to_v2(
    buffer: Buffer, *, base_offset: Offset | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """Rebuild a message set as one batch of magic 2 with the same codec.

    The records keep their offsets, unless ``base_offset`` is given: then they are numbered from it without gaps, as a
    producer's are. Every record keeps the time that readers saw, so the batch is of type CreateTime.
    """
    records = list(iterate_legacy_records(buffer, limit_bytes=limit_bytes))
    if not records:
        raise CorruptBatch("a message set without a whole message")
    if base_offset is not None:
        records = [msgspec.structs.replace(record, offset=base_offset + index) for index, record in enumerate(records)]
    compression = next(_iterate_messages(bytes(buffer), strict=False)).compression
    try:
        return build_batch(records, base_offset=records[0].offset, compression=compression)
    except ValueError as error:
        raise CorruptBatch(f"a message set that no batch can hold: {error}") from None


def _iterate_messages(data: bytes, *, strict: bool) -> Iterator[LegacyMessage]:
    position = 0
    while position + _ENTRY.size <= len(data):
        offset, length = _ENTRY.unpack_from(data, position)
        if length < _START.size:
            raise CorruptBatch(f"message of {length} bytes")
        end = position + LOG_OVERHEAD_BYTES + length
        if end > len(data):
            break
        yield _read_message(data[position + LOG_OVERHEAD_BYTES : end], offset)
        position = end
    if strict and position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes behind the last whole message")


def _read_message(data: bytes, offset: Offset) -> LegacyMessage:
    crc, magic, attributes = _START.unpack_from(data)
    if not 0 <= magic < MAGIC:
        raise CorruptBatch(f"magic {magic} in a message set")
    if zlib.crc32(memoryview(data)[_CRC_SIZE_BYTES:]) != crc:
        raise CorruptBatch(f"message at offset {offset} does not match its CRC")
    position = _START.size
    timestamp = NO_TIMESTAMP
    try:
        if magic > 0:
            (timestamp,) = _INT64.unpack_from(data, position)
            position += _INT64.size
        key, position = _read_bytes(data, position)
        value, position = _read_bytes(data, position)
    except struct.error:
        raise CorruptBatch(f"message at offset {offset} ends early") from None
    if position != len(data):
        raise CorruptBatch(f"the fields of the message at offset {offset} do not fill it")
    return LegacyMessage(offset=offset, magic=magic, attributes=attributes, timestamp=timestamp, key=key, value=value)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; too great a length shows when the message's end is missed."""
    (length,) = _INT32.unpack_from(data, position)
    position += _INT32.size
    if length == _NULL_LENGTH:
        return None, position
    if length < 0:
        raise CorruptBatch(f"negative length {length}")
    return data[position : position + length], position + length


def _unwrap(wrapper: LegacyMessage, limit_bytes: int) -> Iterator[Record]:
    if wrapper.value is None:
        raise CorruptBatch(f"the wrapper at offset {wrapper.offset} is empty")
    compressed = wrapper.value
    if wrapper.compression is Compression.LZ4:
        compressed = with_right_header_checksum(compressed)
    data = decompress(wrapper.compression, compressed, limit_bytes=limit_bytes)
    messages = list(_iterate_messages(data, strict=True))
    if not messages:
        raise CorruptBatch(f"the wrapper at offset {wrapper.offset} is empty")
    # Zero for absolute offsets, too. Producers leave the wrapper's offset at 0 for the broker to fill in.
    shift = max(0, wrapper.offset - messages[-1].offset) if wrapper.magic > 0 else 0
    timestamp = wrapper.timestamp if wrapper.has_log_append_time else None
    for message in messages:
        if message.magic != wrapper.magic or message.compression is not Compression.NONE:
            raise CorruptBatch(f"the wrapper at offset {wrapper.offset} holds a message of another kind")
        yield _as_record(message, shift, timestamp)


def _as_record(message: LegacyMessage, shift: int = 0, timestamp: int | None = None) -> Record:
    return Record(
        offset=Offset(message.offset + shift),
        timestamp=message.timestamp if timestamp is None else timestamp,
        key=message.key,
        value=message.value,
    )


def with_right_header_checksum(frame: bytes) -> bytes:
    """The same frame with the checksum that the specification asks for."""
    if not frame.startswith(_LZ4_MAGIC) or len(frame) < _LZ4_MAGIC_BYTES + 3:
        raise CorruptBatch("not an LZ4 frame")
    flags = frame[_LZ4_MAGIC_BYTES]
    end = _LZ4_MAGIC_BYTES + 2 + (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY_ID else 0)
    checksum = header_checksum(frame[_LZ4_MAGIC_BYTES:end])
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


def header_checksum(descriptor: bytes) -> int:
    """The second byte of the descriptor's xxHash32. A descriptor is at most 14 bytes long."""
    return _xxhash32_of_few(descriptor) >> 8 & 0xFF


def _xxhash32_of_few(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes, where its main loop does not run."""
    digest = _PRIME_5 + len(data)
    words_end = len(data) & ~3
    for (word,) in _UINT32.iter_unpack(data[:words_end]):
        digest = _rotate_left(digest + word * _PRIME_3, 17) * _PRIME_4 & _XXHASH_MASK
    for byte in data[words_end:]:
        digest = _rotate_left(digest + byte * _PRIME_5, 11) * _PRIME_1 & _XXHASH_MASK
    digest = (digest ^ digest >> 15) * _PRIME_2 & _XXHASH_MASK
    digest = (digest ^ digest >> 13) * _PRIME_3 & _XXHASH_MASK
    return digest ^ digest >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _XXHASH_MASK
    return (value << bits | value >> 32 - bits) & _XXHASH_MASK
