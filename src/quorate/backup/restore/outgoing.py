"""What a restore sends to one target partition from any offset on, read from the backup's segments. Does I/O.

The target offset of a record is its number among the partition's records, or the offset that it had at the source.
Which record stands at an offset never depends on where the reading begins, nor on who reads.

Where records keep their offsets, the source has none at some of them: compacted away, aborted, a marker, left out by
the restore, before the log's start. A batch ends where the next one begins, as a compacted one does, and where there is
none before a hole, an empty batch covers it. So each batch begins where the log ends, and its sequence can be its
offset.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.storage import ObjectStorage, StoredObject
from quorate.backup.restore.batches import (
    RecordRules,
    RestoredBatch,
    as_produced,
    header_of,
    restored_batches,
    without_first,
)
from quorate.backup.restore.survey import live_batches
from quorate.backup.restore.transactions import ExcludedTransaction, Exclusions
from quorate.backup.segments.reader import SegmentReader, StoredBatch, WholeFrame
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.native import native
from quorate.records.batch import DetachedBatch, detach, patch_last_offset_delta, read_header
from quorate.records.builder import build_batch

_FIRST_OFFSET: Final = Offset(0)
_MAX_INT64: Final = 2**63 - 1
#: A leader takes a batch for a repetition if one of a producer's last five has its sequences, which begin anew after
#: 2^31: so that many batches must be smaller than that together.
MAX_SPAN: Final = 2**28


class SourceSegments(msgspec.Struct, frozen=True, kw_only=True):
    rules: RecordRules
    excluded: list[ExcludedTransaction]
    segments: list[SegmentEntry]
    segment_counts: list[int]  # Records for the target partition in each.


class PartitionAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """One target partition to be written."""

    topic: TopicName
    partition: PartitionIndex
    sources: list[SourceSegments]
    end_offset: Offset | None = None  # Of the log, where records keep their offsets.

    @property
    def log_end_offset(self) -> int:
        return self.record_count if self.end_offset is None else self.end_offset

    @property
    def record_count(self) -> int:
        return sum(count for source in self.sources for count in source.segment_counts)

    @property
    def estimated_bytes(self) -> int:
        return sum(segment.batch_bytes for source in self.sources for segment in source.segments)


class OutgoingBatch(NamedTuple):
    """A batch as a producer sends it, but for its producer's id, epoch, sequence and CRC."""

    data: DetachedBatch
    offset_count: int
    record_count: int


def outgoing_from(storage: ObjectStorage, assignment: PartitionAssignment, offset: int) -> Iterator[OutgoingBatch]:
    """The batches that a producer sends from a target offset on."""
    if assignment.end_offset is None:
        yield from _numbered_batches(storage, assignment, offset)
    else:
        start = Offset(offset)
        yield from placed_batches(_batches_at(storage, assignment, start), start, assignment.end_offset)


def _numbered_batches(
    storage: ObjectStorage, assignment: PartitionAssignment, position: int
) -> Iterator[OutgoingBatch]:
    """The batches from a position on; segments that lie wholly before it are not read."""
    left_out = position
    for source in assignment.sources:
        exclusions = Exclusions(source.excluded)
        for entry, count in zip(source.segments, source.segment_counts, strict=True):
            if left_out >= count:
                left_out -= count
                continue
            reader = SegmentReader(StoredObject(storage, entry.name, entry.size_bytes))
            for frame in reader.whole_frames():
                plain = None if left_out else plain_batches(frame, entry, source.rules, assignment.partition)
                if plain is not None:
                    yield from plain
                    continue
                for batch in _wanted(reader.batches_of(frame), entry, source, exclusions, assignment.partition):
                    if not left_out:
                        yield _numbered(batch)
                    elif left_out >= batch.record_count:
                        left_out -= batch.record_count
                    else:
                        yield from map(_numbered, without_first(batch, left_out, source.rules))
                        left_out = 0


def _batches_at(storage: ObjectStorage, assignment: PartitionAssignment, offset: Offset) -> Iterator[RestoredBatch]:
    """The batches with records at or after the offset; records keep their offsets."""
    for source in assignment.sources:
        exclusions = Exclusions(source.excluded)
        for entry in source.segments:
            if entry.end_offset > offset:
                reader = SegmentReader(StoredObject(storage, entry.name, entry.size_bytes))
                yield from _wanted(
                    reader.batches(), entry, source, exclusions, assignment.partition, from_offset=offset
                )


def _numbered(batch: RestoredBatch) -> OutgoingBatch:
    count = batch.record_count
    return OutgoingBatch(as_produced(batch), count, count)


def plain_batches(
    frame: WholeFrame, entry: SegmentEntry, rules: RecordRules, target: PartitionIndex
) -> list[OutgoingBatch] | None:
    """The batches of a frame, if all of them are plain and wanted and go back as they are; else None."""
    if native is None or rules.keep_offsets or rules.partition_count is not None or rules.start_ms is not None:
        return None
    if target != rules.source_partition:
        return None
    head = frame.head
    end_ms = _MAX_INT64 if rules.end_ms is None else min(rules.end_ms, _MAX_INT64)
    wanted = (entry.start_offset, entry.live_end_offset, rules.max_batch_bytes, end_ms)
    found = native.plain_batches(frame.payload, (head.batch_count, head.base_offset, head.last_offset, *wanted))
    if found is None:
        return None
    return [OutgoingBatch(DetachedBatch(header, records), count, count) for header, records, count in found]


def _wanted(
    batches: Iterable[StoredBatch],
    entry: SegmentEntry,
    source: SourceSegments,
    exclusions: Exclusions,
    target: PartitionIndex,
    *,
    from_offset: Offset = _FIRST_OFFSET,
) -> Iterator[RestoredBatch]:
    # Frames have a CRC over all of their batches, whose own were checked when they were copied.
    for batch in live_batches(entry, batches):
        header = header_of(batch)
        if header is not None and (header.is_control or exclusions.covers(header)):
            continue
        for restored in restored_batches(batch, header, source.rules, max(entry.start_offset, from_offset)):
            if restored.target == target:
                yield restored


def placed_batches(batches: Iterable[RestoredBatch], start: Offset, end: Offset) -> Iterator[OutgoingBatch]:
    """Cover ``start`` up to, not including, ``end``; the batches lie in there, in order and with their own offsets."""
    position = start
    held: RestoredBatch | None = None
    for batch in batches:
        base_offset = read_header(batch.data).base_offset
        yield from _cover(held, position, base_offset)
        held, position = batch, base_offset
    yield from _cover(held, position, end)


def _cover(batch: RestoredBatch | None, start: Offset, end: Offset) -> Iterator[OutgoingBatch]:
    position = start
    if batch is not None:
        own_end = read_header(batch.data).next_offset
        position = max(own_end, min(end, Offset(start + MAX_SPAN)))
        yield _placed(batch, position)
    while position < end:
        next_position = min(end, Offset(position + MAX_SPAN))
        yield _empty(position, next_position)
        position = next_position


def _placed(batch: RestoredBatch, end: Offset) -> OutgoingBatch:
    base_offset = read_header(batch.data).base_offset
    data = as_produced(batch, base_offset)
    patch_last_offset_delta(data.header, 0, end - 1 - base_offset)
    return OutgoingBatch(data, end - base_offset, batch.record_count)


def _empty(start: Offset, end: Offset) -> OutgoingBatch:
    data = build_batch([], base_offset=start, last_offset_delta=end - 1 - start)
    return OutgoingBatch(detach(data), end - start, 0)
