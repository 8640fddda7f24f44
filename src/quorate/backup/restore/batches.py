"""Makes batches that a broker takes from a producer out of stored ones.

A broker takes a batch whose offsets have no holes, of the current format, with times of its producer, outside of a
transaction. A stored batch that is like that keeps its bytes and gets another header; all others are encoded again,
record by record, and cut where they would be larger than the target allows. Where records keep their offsets, a batch
may have holes. Batches go to a target partition in the
order of the source, and the records inside them too, however they are cut.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from quorate.backup.objects.stored_documents import Count, StoredOffset
from quorate.backup.segments.reader import StoredBatch
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset, PartitionIndex
from quorate.kernel.ports import Buffer
from quorate.records.batch import (
    COMPRESSION_MASK,
    CRC_START,
    DELETE_HORIZON_MASK,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    DetachedBatch,
    detach,
    patch_offset_and_epoch,
    read_header,
)
from quorate.records.builder import build_batch
from quorate.records.legacy import iterate_legacy_records
from quorate.records.record import Record, iterate_keys, iterate_records

_LEGACY_ATTRIBUTES_OFFSET: Final = 17
_FIRST_OFFSET: Final = Offset(0)
_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SIGN_MASK: Final = 0x7FFFFFFF
_REMEMBERED_KEYS: Final = 65_536


class RecordRules(msgspec.Struct, frozen=True, kw_only=True):
    """Which records of a source partition are wanted, and where they go."""

    source_partition: PartitionIndex
    partition_count: int | None = None  # Of the target, where records go by key; None: they stay in their partition.
    start_ms: int | None = None
    end_ms: int | None = None
    max_batch_bytes: int
    keep_offsets: bool = False


class Span(NamedTuple):
    """Records at source offsets in a row."""

    first_offset: StoredOffset
    length: Count


class RestoredBatch(NamedTuple):
    target: PartitionIndex
    data: Buffer  # Not yet a producer's: see ``as_produced``.
    spans: Sequence[Span]

    @property
    def record_count(self) -> int:
        return sum(span.length for span in self.spans)


def restored_batches(
    batch: StoredBatch, header: BatchHeader | None, rules: RecordRules, from_offset: Offset
) -> list[RestoredBatch]:
    """What becomes of a stored batch of data: nothing, one batch or several. ``header`` is None for old formats.

    Records below ``from_offset`` are not there any more for readers. A transaction's records are wanted or not as a
    whole, which was decided before: the time window says nothing about a transactional batch.
    """
    if header is not None and _keeps_its_bytes(batch, header, rules, from_offset):
        return [RestoredBatch(rules.source_partition, batch.data, _spans_of_batch(batch, header))]
    is_transactional = header is not None and header.is_transactional
    wanted = [
        record
        for record in records_of(batch, header)
        if record.offset >= from_offset and (is_transactional or in_window(record.timestamp, rules))
    ]
    codec = _codec(batch, header)
    if rules.partition_count is None:
        return list(_encode(rules.source_partition, wanted, codec, rules))
    by_target: dict[PartitionIndex, list[Record]] = {}
    for record in wanted:
        target = partition_of(record.key, rules.source_partition, rules.partition_count)
        by_target.setdefault(target, []).append(record)
    return [each for target, some in by_target.items() for each in _encode(target, some, codec, rules)]


def records_of(batch: StoredBatch, header: BatchHeader | None) -> Iterable[Record]:
    return iterate_legacy_records(batch.data) if header is None else iterate_records(batch.data)


def in_window(timestamp: int, rules: RecordRules) -> bool:
    if rules.start_ms is not None and timestamp < rules.start_ms:
        return False
    return rules.end_ms is None or timestamp <= rules.end_ms


def header_of(batch: StoredBatch) -> BatchHeader | None:
    return read_header(batch.data) if batch.summary.magic == MAGIC else None


def as_produced(batch: RestoredBatch, base_offset: Offset = _FIRST_OFFSET) -> DetachedBatch:
    """As a producer sends it, but for its producer's id, epoch, sequence and CRC."""
    detached = detach(batch.data)
    # A compressed batch that does not count from 0 would be compressed again by the broker.
    patch_offset_and_epoch(detached.header, 0, base_offset, NO_LEADER_EPOCH)
    detached.header[CRC_START + 1] &= ~TRANSACTIONAL_MASK
    return detached


def without_first(batch: RestoredBatch, count: int, rules: RecordRules) -> list[RestoredBatch]:
    """The rest of a batch whose first records the target has already."""
    records = list(iterate_records(batch.data))
    offsets = [offset for span in batch.spans for offset in range(span.first_offset, span.first_offset + span.length)]
    rest = [
        msgspec.structs.replace(record, offset=Offset(offset)) for record, offset in zip(records, offsets, strict=True)
    ]
    codec = read_header(batch.data).compression
    return list(_encode(batch.target, rest[count:], codec, rules))


def spans_of(offsets: Iterable[Offset]) -> list[Span]:
    spans: list[Span] = []
    for offset in offsets:
        if spans and offset == spans[-1].first_offset + spans[-1].length:
            spans[-1] = Span(spans[-1].first_offset, spans[-1].length + 1)
        else:
            spans.append(Span(offset, 1))
    return spans


def _keeps_its_bytes(batch: StoredBatch, header: BatchHeader, rules: RecordRules, from_offset: Offset) -> bool:
    if header.record_count == 0 or not (rules.keep_offsets or _is_dense(header)):
        return False
    if header.attributes & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK) or header.base_offset < from_offset:
        return False
    if rules.partition_count is not None or len(batch.data) > rules.max_batch_bytes:
        return False
    if header.is_transactional:
        return True
    # A header tells its batch's newest time, and not its oldest.
    return rules.start_ms is None and (rules.end_ms is None or header.max_timestamp <= rules.end_ms)


def _is_dense(header: BatchHeader) -> bool:
    return header.last_offset_delta == header.record_count - 1


def _spans_of_batch(batch: StoredBatch, header: BatchHeader) -> list[Span]:
    if _is_dense(header):
        return [Span(header.base_offset, header.record_count)]
    return spans_of(offset for offset, _, _ in iterate_keys(batch.data))


def _codec(batch: StoredBatch, header: BatchHeader | None) -> Compression:
    if header is not None:
        return header.compression
    return Compression(batch.data[_LEGACY_ATTRIBUTES_OFFSET] & COMPRESSION_MASK)


def _encode(
    target: PartitionIndex, records: list[Record], codec: Compression, rules: RecordRules
) -> Iterable[RestoredBatch]:
    """As few batches as fit. A record that is too large alone comes out as it is: the survey sees it and refuses."""
    if not records:
        return
    if rules.keep_offsets:
        data = build_batch(records, base_offset=records[0].offset, compression=codec)
    else:
        numbered = [msgspec.structs.replace(record, offset=Offset(index)) for index, record in enumerate(records)]
        data = build_batch(numbered, compression=codec)
    if len(data) <= rules.max_batch_bytes or len(records) == 1:
        yield RestoredBatch(target, data, spans_of(record.offset for record in records))
        return
    middle = len(records) // 2
    yield from _encode(target, records[:middle], codec, rules)
    yield from _encode(target, records[middle:], codec, rules)


def partition_of(key: bytes | None, source_partition: int, partition_count: int) -> PartitionIndex:
    """The same as every producer with the default partitioner gives; records without a key of one partition stay
    together, and so in their order."""
    if key is None:
        return PartitionIndex(source_partition % partition_count)
    return PartitionIndex((murmur2(key) & _SIGN_MASK) % partition_count)


@lru_cache(_REMEMBERED_KEYS)
def murmur2(data: bytes) -> int:
    """MurmurHash2 of 32 bits, with the seed that Kafka's Java client uses; unsigned."""
    digest = _SEED ^ len(data)
    whole = len(data) & ~3
    for position in range(0, whole, 4):
        word = int.from_bytes(data[position : position + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        digest = digest * _MULTIPLIER & _MASK ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    digest = (digest ^ digest >> 13) * _MULTIPLIER & _MASK
    return digest ^ digest >> 15
