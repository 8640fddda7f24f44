"""The header of a record batch (magic 2): read, checked, walked over and patched.

Nothing here looks at single records, so a broker pays per batch and never per record. The CRC covers the attributes
and all that follows; the base offset, the length, the leader epoch and the magic byte stand before it, which is why a
leader may patch offset and epoch without touching the CRC.

A stored batch that is sent as another producer's differs in a few bytes of its header. ``detach`` gives a small copy of
the header to change, and the records go from the memory they were read into to the socket.
"""

import struct
from collections.abc import Callable, Iterator
from enum import IntEnum
from functools import partial
from typing import Any, Final, NamedTuple

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer
from quorate.records.errors import CorruptBatch, UnsupportedMagic

HEADER_SIZE_BYTES = 61
LOG_OVERHEAD_BYTES = 12  # Base offset and length, which the length itself does not count.
MAGIC = 2

LENGTH_OFFSET = 8
LEADER_EPOCH_OFFSET = 12
MAGIC_OFFSET = 16
CRC_OFFSET = 17
CRC_START = 21  # The attributes: the first byte under the CRC.
LAST_OFFSET_DELTA_OFFSET = 23
MAX_TIMESTAMP_OFFSET = 35
PRODUCER_OFFSET = 43

_SEQUENCE_SPAN = 2**31

_HEADER = struct.Struct(">qiibIhiqqqhii")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")
_INT64 = struct.Struct(">q")
_PRODUCER = struct.Struct(">qhi")

# The bits of the attributes.
COMPRESSION_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40  # KIP-534


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class TimestampType(IntEnum):
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class BatchHeader(NamedTuple):
    """The 61 bytes before the records, in the order of the wire."""

    base_offset: Offset
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, from its base offset to the end of its last record."""
        return self.batch_length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta)

    @property
    def next_offset(self) -> Offset:
        return Offset(self.base_offset + self.last_offset_delta + 1)

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; after 2^31 - 1 comes 0. -1 where the batch has no sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_SPAN

    @property
    def compression(self) -> Compression:
        try:
            return Compression(self.attributes & COMPRESSION_MASK)
        except ValueError:
            raise CorruptBatch(f"unknown compression codec {self.attributes & COMPRESSION_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType.LOG_APPEND_TIME if self.attributes & TIMESTAMP_TYPE_MASK else TimestampType.CREATE_TIME

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_MASK != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_MASK != 0

    @property
    def has_delete_horizon(self) -> bool:
        """Whether the base timestamp is the time from which tombstones in the batch may go (KIP-534)."""
        return self.attributes & DELETE_HORIZON_MASK != 0


#: From its fields. As ``_make`` does, which would cost one more call for each batch.
header_of: Final[Callable[[tuple[Any, ...]], BatchHeader]] = partial(tuple.__new__, BatchHeader)

#: Each with its position in the buffer.
LocatedBatches = list[tuple[int, BatchHeader]]


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at ``position``; whether the whole batch is in the buffer is not checked.

    Raises ``CorruptBatch`` where no header of magic 2 can stand, ``UnsupportedMagic`` on message formats 0 and 1.
    """
    try:
        header = header_of(_HEADER.unpack_from(buffer, position))
    except struct.error:
        raise _short_header(buffer, position) from None
    if header.magic != MAGIC:
        raise _wrong_magic(header.magic)
    if header.batch_length < HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES:
        raise CorruptBatch(f"batch length {header.batch_length} is less than a batch header")
    return header


def is_transactional(buffer: Buffer, position: int = 0) -> bool:
    """The same as of the header, without reading it."""
    return buffer[position + CRC_START + 1] & TRANSACTIONAL_MASK != 0


def iterate_batches(buffer: Buffer, position: int = 0, *, strict: bool = False) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch in turn.

    A partial batch at the end is passed over, since fetched bytes may end in one; with ``strict`` it is corrupt.
    """
    end = len(buffer)
    while position < end:
        if position + HEADER_SIZE_BYTES > end and _may_continue(buffer, position):
            break
        header = read_header(buffer, position)
        if position + header.size_bytes > end:
            break
        yield position, header
        position += header.size_bytes
    if strict and position < end:
        raise CorruptBatch(f"{end - position} bytes at position {position} are not a whole batch")


def read_batches(buffer: Buffer) -> LocatedBatches:
    """Position and header of each batch in a buffer that must hold whole batches only."""
    if len(buffer) >= HEADER_SIZE_BYTES:
        header = read_header(buffer)
        if header.batch_length + LOG_OVERHEAD_BYTES == len(buffer):
            return [(0, header)]  # As every producer sends it.
    return list(iterate_batches(buffer, strict=True))


def crc_of(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """The CRC32C that the batch at ``position`` should carry. Copies nothing."""
    end = position + header.batch_length + LOG_OVERHEAD_BYTES
    if end > len(buffer):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes in {len(buffer) - position}")
    return crc32c(memoryview(buffer)[position + CRC_START : end])


def check_crc(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise ``CorruptBatch`` unless the batch is whole and its CRC is right."""
    computed = crc_of(buffer, position, header)
    if computed != header.crc:
        raise CorruptBatch(f"batch at offset {header.base_offset} has CRC {header.crc:#010x}, not {computed:#010x}")


def patch_offset_and_epoch(
    buffer: bytearray | memoryview, position: int, base_offset: Offset, leader_epoch: LeaderEpoch
) -> None:
    """Give the batch its place in the log, in place. Neither field is under the CRC."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_OFFSET, leader_epoch)


def patch_last_offset_delta(buffer: bytearray | memoryview, position: int, last_offset_delta: int) -> None:
    """Let the batch end elsewhere, in place. The CRC is not renewed: the patch of the producer, which follows, does."""
    _INT32.pack_into(buffer, position + LAST_OFFSET_DELTA_OFFSET, last_offset_delta)


def with_payload(batch: Buffer, compression: Compression, payload: Buffer) -> bytearray:
    """A copy of the batch that is at the buffer's start, with the same records in another codec."""
    header = read_header(batch)
    copy = bytearray(memoryview(batch)[:HEADER_SIZE_BYTES])
    copy += payload
    _INT32.pack_into(copy, LENGTH_OFFSET, len(copy) - LOG_OVERHEAD_BYTES)
    _INT16.pack_into(copy, CRC_START, header.attributes & ~COMPRESSION_MASK | compression)
    pack_crc(copy, crc32c(memoryview(copy)[CRC_START:]))
    return copy


def patch_log_append_time(buffer: bytearray | memoryview, position: int, timestamp_ms: int) -> None:
    """Stamp the batch with the broker's time, in place, and renew its CRC.

    The base timestamp and the deltas stay: with this timestamp type readers take the maximum for every record.
    """
    header = read_header(buffer, position)
    _INT16.pack_into(buffer, position + CRC_START, header.attributes | TIMESTAMP_TYPE_MASK)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_OFFSET, timestamp_ms)
    pack_crc(buffer, crc_of(buffer, position, header), position)


def pack_producer(
    header: bytearray, producer_id: ProducerId, producer_epoch: ProducerEpoch, base_sequence: int
) -> None:
    """Write the producer's fields into a header; the CRC is the caller's to renew."""
    _PRODUCER.pack_into(header, PRODUCER_OFFSET, producer_id, producer_epoch, base_sequence)


def pack_crc(buffer: bytearray | memoryview, crc: int, position: int = 0) -> None:
    _UINT32.pack_into(buffer, position + CRC_OFFSET, crc)


def _may_continue(buffer: Buffer, position: int) -> bool:
    """Whether too few bytes for a header are the start of one that was cut off."""
    if position + MAGIC_OFFSET >= len(buffer):
        return True
    return buffer[position + MAGIC_OFFSET] == MAGIC


def _short_header(buffer: Buffer, position: int) -> CorruptBatch | UnsupportedMagic:
    """A whole message of format 0 or 1 may be shorter than this header: name it for what it is."""
    if position + MAGIC_OFFSET < len(buffer) and buffer[position + MAGIC_OFFSET] < MAGIC:
        return UnsupportedMagic(buffer[position + MAGIC_OFFSET])
    return CorruptBatch(f"{len(buffer) - position} bytes are less than a batch header")


def _wrong_magic(magic: int) -> CorruptBatch | UnsupportedMagic:
    if magic in (0, 1):
        return UnsupportedMagic(magic)
    return CorruptBatch(f"no record batch has magic {magic}")


class DetachedBatch(NamedTuple):
    """A batch whose header can be changed while its records stay where they are."""

    header: bytearray  # All before the records; the owner's to change.
    records: memoryview

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.records)


def detach(batch: Buffer) -> DetachedBatch:
    """The records are a view of the batch, which must not change any more."""
    view = memoryview(batch)
    return DetachedBatch(bytearray(view[:HEADER_SIZE_BYTES]), view[HEADER_SIZE_BYTES:])


def patch_producer(
    batch: DetachedBatch, producer_id: ProducerId, producer_epoch: ProducerEpoch, base_sequence: int
) -> None:
    """Make the batch another producer's, and renew its CRC for all that was changed in the header."""
    header = batch.header
    pack_producer(header, producer_id, producer_epoch, base_sequence)
    pack_crc(header, crc32c(batch.records, crc32c(header[CRC_START:])))
