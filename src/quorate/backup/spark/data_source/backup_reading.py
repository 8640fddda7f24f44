"""Reads a backup as Arrow batches: planned on the driver, read piece by piece in Spark's workers. Does I/O.

The plan says which manifest, which segments and which part of them each task reads.
"""

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING, Final

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, PartitionEntry, SegmentEntry, TopicEntry
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation, StoredObject
from quorate.backup.planning.ranges import even_spans, fill
from quorate.backup.restore.batches import header_of
from quorate.backup.restore.survey import live_batches
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.spark.data_source.columns import ArrowRows
from quorate.backup.spark.data_source.options import BackupSource, SourceOptions
from quorate.backup.spark.data_source.row_reader import PartitionRows, fastest_scan
from quorate.backup.spark.data_source.transactions import BackupBatch, CommittedBatches
from quorate.client.fetch.batches import IsolationLevel
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName
from quorate.records.columnar import RowBounds

if TYPE_CHECKING:
    import pyarrow

_PIECES_PER_TASK: Final = 512
_MAX_PIECES_PER_SEGMENT: Final = 1024  # However large a manifest says that it is.


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


def plan_backup(source: BackupSource, options: SourceOptions) -> list[BackupTask]:
    manifest = choose_manifest(source)
    pieces = plan_pieces(manifest, options)
    return [
        BackupTask(
            backup_id=source.backup_id,
            location=source.location,
            manifest_number=manifest.number,
            pieces=group,
            isolation=options.isolation,
            start_ms=options.start_ms,
            end_ms=options.end_ms,
            columns=options.columns,
        )
        for group in fill(
            pieces,
            lambda piece: piece.estimated_bytes,
            max_bytes=options.max_bytes_per_task,
            max_items=_PIECES_PER_TASK,
        )
    ]


def choose_manifest(source: BackupSource) -> Manifest:
    catalog = ManifestCatalog(open_storage(source.location), source.backup_id)
    if source.manifest is not None:
        return catalog.read(source.manifest)
    numbers = catalog.numbers()
    if not numbers:
        raise BackupError(f"there is no backup {source.backup_id} in {source.location.url}")
    for number in reversed(numbers):
        manifest = catalog.read(number)
        if source.as_of_ms is None or manifest.captured_ms <= source.as_of_ms:
            return manifest
    raise BackupError(f"the oldest manifest of backup {source.backup_id} is younger than the time in option as_of")


def plan_pieces(manifest: Manifest, options: SourceOptions) -> Iterator[SegmentPiece]:
    names = sorted({topic.name for topic in manifest.topics})
    for missing in options.topics.names_without_topic(names):
        raise QuorateError(f"topic {missing} is not in manifest {manifest.number}")
    for name in names:
        topic = manifest.latest(name)
        if topic is None or not options.topics.selects(name, is_internal=topic.is_internal):
            continue
        for partition in topic.partitions:
            if options.wants_partition(partition.partition):
                yield from _pieces_of(topic, partition, options)


def _pieces_of(topic: TopicEntry, partition: PartitionEntry, options: SourceOptions) -> Iterator[SegmentPiece]:
    start = options.start_offsets.of(topic.name, partition.partition)
    end = options.end_offsets.of(topic.name, partition.partition)
    for segment in partition.segments:
        # The times of a segment tell its newest record exactly, but its oldest only nearly.
        if segment.max_timestamp is not None and segment.max_timestamp < options.start_ms:
            continue
        first = segment.start_offset if start is None else Offset(max(start, segment.start_offset))
        stop = segment.record_end_offset if end is None else Offset(min(end, segment.record_end_offset))
        whole = SegmentPiece(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=partition.partition,
            segment=segment,
            start_offset=first,
            end_offset=stop,
            losses=partition.losses,
        )
        yield from _cut(whole, options.max_bytes_per_task)


def _cut(piece: SegmentPiece, task_bytes: int) -> Iterator[SegmentPiece]:
    if piece.end_offset <= piece.start_offset:
        return
    count = min(-(-piece.estimated_bytes // task_bytes), _MAX_PIECES_PER_SEGMENT)
    for start, end in even_spans(piece.start_offset, piece.end_offset, count):
        yield msgspec.structs.replace(piece, start_offset=start, end_offset=end)
