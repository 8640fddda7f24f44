"""What a backup has to know of a stored batch, whatever its message format.

A batch of magic 2 tells all of it in its header. Messages of formats 0 and 1 stand alone or wrap a compressed set; a
wrapper names only its last offset, so it is opened. A message of these formats counts as a batch of its own.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    LENGTH_OFFSET,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MAGIC_OFFSET,
    TIMESTAMP_TYPE_MASK,
    BatchHeader,
    check_crc,
    read_header,
)
from quorate.records.errors import CorruptBatch
from quorate.records.legacy import iterate_legacy_records
from quorate.records.record import NO_TIMESTAMP, iterate_records

_LENGTH = struct.Struct(">i")
_LEGACY_ATTRIBUTES_OFFSET = 17


class BatchSummary(NamedTuple):
    base_offset: Offset
    last_offset: Offset
    size_bytes: int
    magic: int
    leader_epoch: LeaderEpoch
    record_count: int
    min_timestamp: int  # NO_TIMESTAMP where no record has one. See ``summarize`` for how exact it is.
    max_timestamp: int
    is_compressed: bool
    #: Whether it can go back to a broker as it is: the current format with the producer's times, a record for each
    #: offset, outside of transactions.
    is_plain: bool
    is_control: bool  # Its records are markers of transactions, which readers never see.

    @property
    def next_offset(self) -> Offset:
        return Offset(self.last_offset + 1)

    @property
    def data_record_count(self) -> int:
        return 0 if self.is_control else self.record_count


def summarize(buffer: Buffer, position: int, header: BatchHeader) -> BatchSummary:
    """Sum up a batch of magic 2 from its header.

    The minimum is the base timestamp, which is the first record's: a record behind it may be older. Only where the
    base timestamp is something else (KIP-534's delete horizon) are the records read.
    """
    attributes, record_count = header.attributes, header.record_count
    min_timestamp, max_timestamp = header.base_timestamp, header.max_timestamp
    if record_count == 0:
        min_timestamp = max_timestamp = NO_TIMESTAMP  # What compaction leaves of a batch keeps times of no record.
    elif attributes & TIMESTAMP_TYPE_MASK:
        min_timestamp = max_timestamp
    elif attributes & DELETE_HORIZON_MASK:
        min_timestamp = min(record.timestamp for record in iterate_records(buffer, position))
    return BatchSummary(
        header.base_offset,
        Offset(header.base_offset + header.last_offset_delta),
        header.batch_length + LOG_OVERHEAD_BYTES,
        header.magic,
        header.partition_leader_epoch,
        record_count,
        min_timestamp,
        max_timestamp,
        attributes & COMPRESSION_MASK != 0,
        attributes & ~COMPRESSION_MASK == 0 and 0 < record_count == header.last_offset_delta + 1,
        attributes & CONTROL_MASK != 0,
    )


def iterate_summaries(
    buffer: Buffer, position: int = 0, *, strict: bool = False, check_crcs: bool = False
) -> Iterator[tuple[int, BatchSummary]]:
    """Yield position and summary of each whole batch, in any mix of message formats.

    A partial batch at the end is passed over, since fetched bytes may end in one; with ``strict`` it is corrupt.
    The CRC of messages of formats 0 and 1 is always checked, since their summary reads all of them.
    """
    end = len(buffer)
    while position + MAGIC_OFFSET < end:
        next_position = position + _size_at(buffer, position)
        if next_position > end:
            break
        if buffer[position + MAGIC_OFFSET] < MAGIC:
            yield position, _summarize_legacy(memoryview(buffer)[position:next_position])
        else:
            header = read_header(buffer, position)
            if check_crcs:
                check_crc(buffer, position, header)
            yield position, summarize(buffer, position, header)
        position = next_position
    if strict and position < end:
        raise CorruptBatch(f"{end - position} bytes at position {position} are not a whole batch")


def _size_at(buffer: Buffer, position: int) -> int:
    (length,) = _LENGTH.unpack_from(buffer, position + LENGTH_OFFSET)
    if length <= MAGIC_OFFSET - LOG_OVERHEAD_BYTES:
        raise CorruptBatch(f"batch length {length} at position {position} is less than any batch has")
    return int(length) + LOG_OVERHEAD_BYTES


def _summarize_legacy(message: memoryview) -> BatchSummary:
    records = list(iterate_legacy_records(message))
    if not records:
        raise CorruptBatch("a message of an old format without a record")
    timestamps = [record.timestamp for record in records if record.timestamp != NO_TIMESTAMP]
    return BatchSummary(
        records[0].offset,
        records[-1].offset,
        len(message),
        message[MAGIC_OFFSET],
        NO_LEADER_EPOCH,
        len(records),
        min(timestamps, default=NO_TIMESTAMP),
        max(timestamps, default=NO_TIMESTAMP),
        message[_LEGACY_ATTRIBUTES_OFFSET] & COMPRESSION_MASK != 0,
        False,
        False,
    )
