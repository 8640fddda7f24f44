"""Reads pieces of a backup's segments as Arrow batches. Runs in a Spark worker; does I/O."""

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

import msgspec

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject, open_storage
from quorate.backup.restore.batches import header_of
from quorate.backup.restore.survey import live_batches
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.spark.data_source.columns import ArrowRows
from quorate.backup.spark.data_source.row_reader import PartitionRows
from quorate.backup.spark.data_source.transactions import BackupBatch, CommittedBatches
from quorate.backup.spark.native_scan import fastest_scan
from quorate.client.fetch.batches import IsolationLevel
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName
from quorate.records.columnar import RowBounds

if TYPE_CHECKING:
    import pyarrow


class SegmentPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets of one segment, from ``start_offset`` up to, and without, ``end_offset``."""

    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    segment: SegmentEntry
    start_offset: Offset
    end_offset: Offset
    losses: list[Offset]  # Of the partition.

    @property
    def estimated_bytes(self) -> int:
        """The segment's bytes spread evenly over its offsets."""
        segment = self.segment
        span = max(segment.end_offset - segment.start_offset, 1)
        return segment.batch_bytes * max(0, self.end_offset - self.start_offset) // span


class BackupTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one Spark task reads."""

    backup_id: str
    location: StorageLocation
    manifest_number: int
    pieces: list[SegmentPiece]
    isolation: IsolationLevel
    start_ms: int
    end_ms: int
    columns: tuple[str, ...]


def read_backup(task: BackupTask) -> "Iterator[pyarrow.RecordBatch]":
    storage = open_storage(task.location)
    arrow, scan = ArrowRows(task.columns), fastest_scan()
    for piece in task.pieces:
        bounds = RowBounds(piece.start_offset, piece.end_offset, task.start_ms, task.end_ms)
        rows = PartitionRows(piece.topic, piece.partition, bounds, arrow, scan)
        for batch in _counting_batches(_PartitionBatches(task, storage, piece), task.isolation, piece):
            yield from rows.add(batch.data, batch.header)
        yield from rows.flush()


def _counting_batches(
    partition: "_PartitionBatches", isolation: IsolationLevel, piece: SegmentPiece
) -> Iterator[BackupBatch]:
    batches = partition.batches_from(piece.start_offset)
    if isolation is IsolationLevel.READ_COMMITTED:
        return iter(CommittedBatches(batches, partition.batches_from, piece.end_offset, losses=piece.losses))
    before_end = takewhile(lambda batch: batch.base_offset < piece.end_offset, batches)
    return (batch for batch in before_end if batch.header is None or not batch.header.is_control)


class _PartitionBatches:
    """The batches of a piece and of all that follows it in the partition, read only as far as they are asked for."""

    def __init__(self, task: BackupTask, storage: ObjectStorage, piece: SegmentPiece) -> None:
        self._task = task
        self._storage = storage
        self._piece = piece

    def batches_from(self, offset: Offset) -> Iterator[BackupBatch]:
        if offset < self._piece.segment.record_end_offset:
            yield from self._of_segment(self._piece.segment, offset)
        for segment in self._following():
            if segment.record_end_offset > offset:
                yield from self._of_segment(segment, offset)

    def _of_segment(self, segment: SegmentEntry, offset: Offset) -> Iterator[BackupBatch]:
        reader = SegmentReader(StoredObject(self._storage, segment.name, segment.size_bytes))
        for batch in live_batches(segment, reader.batches(from_offset=offset, check_crcs=True)):
            yield BackupBatch(batch.summary.base_offset, header_of(batch), batch.data)

    def _following(self) -> list[SegmentEntry]:
        """Asked for only where a transaction's end is looked for: a task does not carry the whole manifest."""
        task, piece = self._task, self._piece
        topic = (
            ManifestCatalog(self._storage, task.backup_id).read(task.manifest_number).find(piece.topic_id, piece.topic)
        )
        assert topic is not None, "a manifest does not change"
        entry = next(each for each in topic.partitions if each.partition == piece.partition)
        return [each for each in entry.segments if each.start_offset >= piece.segment.live_end_offset]
