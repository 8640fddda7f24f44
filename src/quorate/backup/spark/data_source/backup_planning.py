"""Turns what is asked of a backup into tasks: which manifest, which segments, which part of them. Does I/O."""

from collections.abc import Iterator
from typing import Final

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import Manifest, PartitionEntry, TopicEntry
from quorate.backup.objects.storage import open_storage
from quorate.backup.planning.ranges import even_spans, fill
from quorate.backup.spark.data_source.backup_reading import BackupTask, SegmentPiece
from quorate.backup.spark.data_source.options import BackupSource, SourceOptions
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset

_PIECES_PER_TASK: Final = 512
_MAX_PIECES_PER_SEGMENT: Final = 1024  # However large a manifest says that it is.


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
