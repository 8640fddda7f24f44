"""The batches of one target partition from any position on, read from the backup's segments. Does I/O.

Position i is the i-th record of the partition, and so its target offset. The order of records never depends on where
the reading begins, nor on who reads.
"""

from collections.abc import Iterator

import msgspec

from quorate.backup.manifest import SegmentEntry
from quorate.backup.restore_batches import RecordRules, RestoredBatch, header_of, restored_batches, without_first
from quorate.backup.restore_survey import live_batches
from quorate.backup.restore_transactions import ExcludedTransaction, Exclusions
from quorate.backup.segment_reader import SegmentReader
from quorate.backup.storage import ObjectStorage, StoredObject
from quorate.kernel.ids import PartitionIndex, TopicName


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

    @property
    def record_count(self) -> int:
        return sum(count for source in self.sources for count in source.segment_counts)

    @property
    def estimated_bytes(self) -> int:
        return sum(segment.batch_bytes for source in self.sources for segment in source.segments)


def batches_from(storage: ObjectStorage, assignment: PartitionAssignment, position: int) -> Iterator[RestoredBatch]:
    """Segments that lie wholly before the position are not read."""
    left_out = position
    for source in assignment.sources:
        exclusions = Exclusions(source.excluded)
        for entry, count in zip(source.segments, source.segment_counts, strict=True):
            if left_out >= count:
                left_out -= count
                continue
            for batch in _segment_batches(storage, entry, source.rules, exclusions, assignment.partition):
                if left_out >= batch.record_count:
                    left_out -= batch.record_count
                elif left_out:
                    yield from without_first(batch, left_out, source.rules.max_batch_bytes)
                    left_out = 0
                else:
                    yield batch


def _segment_batches(
    storage: ObjectStorage,
    entry: SegmentEntry,
    rules: RecordRules,
    exclusions: Exclusions,
    target: PartitionIndex,
) -> Iterator[RestoredBatch]:
    reader = SegmentReader(StoredObject(storage, entry.name, entry.size_bytes))
    for batch in live_batches(entry, reader.batches(check_crcs=True)):
        header = header_of(batch)
        if header is not None and (header.is_control or exclusions.covers(header)):
            continue
        for restored in restored_batches(batch, header, rules, entry.start_offset):
            if restored.target == target:
                yield restored
