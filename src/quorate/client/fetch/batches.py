"""Fetched record batches: walked over by their headers, cut to a range of offsets, checked, never decoded.

A batch belongs to the range that holds its last offset. So ranges that touch give every batch exactly once, wherever
their borders lie: inside a batch, in a compaction gap, or where records before the log start were deleted.
"""

import zlib
from collections.abc import Sequence
from enum import IntEnum
from struct import Struct as Format
from typing import Final, NamedTuple

import msgspec

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.records.batch import HEADER_SIZE_BYTES, LOG_OVERHEAD_BYTES, MAGIC, BatchHeader, check_crc, read_header
from quorate.records.errors import CorruptBatch
from quorate.records.legacy import iterate_legacy_records


class IsolationLevel(IntEnum):
    #: Everything below the high watermark.
    READ_UNCOMMITTED = 0
    #: Everything below the last stable offset, with the list of aborted transactions.
    READ_COMMITTED = 1


_OFFSET_AND_LENGTH: Final = Format(">qi")
_MAGIC_POSITION: Final = 16
_LEGACY_CRC: Final = Format(">I")
_LEGACY_CRC_POSITION: Final = 12
_LEGACY_CRC_START: Final = 16
_LEGACY_ATTRIBUTES_POSITION: Final = 17
_LEGACY_COMPRESSION_MASK: Final = 0x07


class FetchRange(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one partition: from ``start_offset`` up to, not including, ``end_offset``."""

    topic: TopicName
    partition: PartitionIndex
    start_offset: Offset
    end_offset: Offset
    #: The topic that is meant; None for the one that has the name when the fetching starts.
    topic_id: TopicId | None = None
    #: The leader epoch of the batch before ``start_offset``, where it is known: finds a log that was cut back since.
    last_fetched_epoch: LeaderEpoch = NO_LEADER_EPOCH

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class FetchedBatch(NamedTuple):
    """Where one batch lies in the fetched data. ``header`` is None for messages of format 0 and 1."""

    position: int
    size_bytes: int
    base_offset: Offset
    last_offset: Offset
    header: BatchHeader | None


class AbortedProducer(msgspec.Struct, frozen=True):
    """From ``first_offset`` up to its abort marker, the producer's transactional records do not count."""

    producer_id: ProducerId
    first_offset: Offset


class FetchedBatches(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of one partition, whole and in order."""

    range: FetchRange
    #: The batches back to back. The memory is used again as soon as the next item is asked for.
    data: memoryview
    batch_count: int
    #: Where the next piece of the range will start.
    next_offset: Offset
    high_watermark: Offset
    #: -1 where the broker did not tell.
    last_stable_offset: Offset
    log_start_offset: Offset
    #: Only with ``READ_COMMITTED``: those that touch these batches.
    aborted_transactions: Sequence[AbortedProducer]
    #: Who sent it, and in which leader epoch.
    node_id: NodeId
    leader_epoch: LeaderEpoch
    #: True in exactly one item of a range: all of it has been handed out.
    is_last: bool

    def walk(self) -> list[FetchedBatch]:
        """Where each batch lies in the data. To be asked for while the data is there, unless there is no batch."""
        return walk_batches(self.data) if self.batch_count else []


class RangeFailed(msgspec.Struct, frozen=True, kw_only=True):
    """A range that cannot be read further; what was handed out before ``next_offset`` stands."""

    range: FetchRange
    next_offset: Offset
    error: QuorateError


def walk_batches(data: memoryview) -> list[FetchedBatch]:
    """Every whole batch; a partial one at the end is dropped. Only headers are read, no CRC is checked."""
    batches = []
    position, end = 0, len(data)
    while position + _MAGIC_POSITION < end:
        magic = data[position + _MAGIC_POSITION]
        if magic == MAGIC:
            if position + HEADER_SIZE_BYTES > end:
                break
            header = read_header(data, position)
            base_offset, length = header.base_offset, header.batch_length
            batch = FetchedBatch(
                position,
                length + LOG_OVERHEAD_BYTES,
                base_offset,
                Offset(base_offset + header.last_offset_delta),
                header,
            )
        elif magic < MAGIC:
            batch = _legacy_batch(data, position)
        else:
            raise CorruptBatch(f"no record batch has magic {magic}")
        position += batch.size_bytes
        if position > end:
            break
        batches.append(batch)
    return batches


def cut_to_range(
    batches: list[FetchedBatch], start_offset: Offset, end_offset: Offset, *, include_batch_across_end: bool
) -> list[FetchedBatch]:
    """The batches whose last offset lies in the range; they are neighbours, as offsets only grow."""
    first, stop = 0, len(batches)
    while first < stop and batches[first].last_offset < start_offset:
        first += 1
    while stop > first and not _is_before(batches[stop - 1], end_offset, include_batch_across_end):
        stop -= 1
    return batches[first:stop]


def _is_before(batch: FetchedBatch, end_offset: Offset, include_batch_across_end: bool) -> bool:
    return (batch.base_offset if include_batch_across_end else batch.last_offset) < end_offset


def slice_data(data: memoryview, batches: list[FetchedBatch]) -> tuple[memoryview, list[FetchedBatch]]:
    """The bytes of these neighbouring batches, and the batches with their positions in them."""
    if not batches:
        return data[:0], []
    start, last = batches[0].position, batches[-1]
    if start:
        batches = [batch._replace(position=batch.position - start) for batch in batches]
    return data[start : last.position + last.size_bytes], batches


def check_batches(data: memoryview, batches: Sequence[FetchedBatch]) -> None:
    """Raise ``CorruptBatch`` at the first batch whose checksum is wrong."""
    for batch in batches:
        if batch.header is None:
            _check_legacy_crc(data, batch)
        else:
            check_crc(data, batch.position, batch.header)


def needed_bytes(data: memoryview) -> int:
    """How large the first batch is, of which only a part was sent; 0 where that cannot be told."""
    if len(data) < LOG_OVERHEAD_BYTES:
        return 0
    return int(_OFFSET_AND_LENGTH.unpack_from(data)[1]) + LOG_OVERHEAD_BYTES


def _legacy_batch(data: memoryview, position: int) -> FetchedBatch:
    """A message of format 0 or 1. A compressed one wraps others, and carries the offset of the last of them."""
    last_offset, length = _OFFSET_AND_LENGTH.unpack_from(data, position)
    size_bytes = length + LOG_OVERHEAD_BYTES
    if size_bytes <= _LEGACY_ATTRIBUTES_POSITION:
        raise CorruptBatch(f"message length {length} is less than a message header")
    base_offset = last_offset
    is_whole = position + size_bytes <= len(data)
    if is_whole and data[position + _LEGACY_ATTRIBUTES_POSITION] & _LEGACY_COMPRESSION_MASK:
        first_record = next(iter(iterate_legacy_records(data[position : position + size_bytes])), None)
        base_offset = first_record.offset if first_record is not None else last_offset
    return FetchedBatch(position, size_bytes, base_offset, last_offset, None)


def _check_legacy_crc(data: memoryview, batch: FetchedBatch) -> None:
    (stored,) = _LEGACY_CRC.unpack_from(data, batch.position + _LEGACY_CRC_POSITION)
    computed = zlib.crc32(data[batch.position + _LEGACY_CRC_START : batch.position + batch.size_bytes])
    if stored != computed:
        raise CorruptBatch(f"message at offset {batch.last_offset} has CRC {stored:#010x}, not {computed:#010x}")
