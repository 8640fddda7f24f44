"""Which small segments of a manifest become one, how that one is written, and the manifest that then follows.

Segments are merged where they lie next to each other: without a gap between, and none of them cut by a truncation. What
a manifest says beside its segments (gaps, epochs, aborted transactions, superseded tails, groups) stays as it is.

Batches are written as they are. Every frame and batch is checked as it is read, and what was written is compared with
what the manifest says of the sources before the object counts: damage stays where it is, and is never copied into a
new, sound object.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from quorate.backup.errors import DamagedSegment
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    Manifest,
    PartitionEntry,
    SegmentEntry,
    segment_entry,
)
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.objects.storage import ObjectStorage, StoredObject
from quorate.backup.segments.layout import FrameCodec, SegmentHeader
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.segments.writer import SegmentWriter, open_segment
from quorate.kernel.ids import PartitionIndex, TopicId, TopicName

MIB = 1024 * 1024
DEFAULT_MIN_SEGMENT_BYTES = 64 * MIB
DEFAULT_MAX_SEGMENT_BYTES = 128 * MIB


class MergeGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Segments of one partition, in a row, that become one."""

    topic: TopicName
    topic_id: TopicId
    generation: int
    partition: PartitionIndex
    segments: list[SegmentEntry]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """What a group became."""

    group: MergeGroup
    merged: SegmentEntry


def plan_merges(
    manifest: Manifest, *, min_segment_bytes: int, max_segment_bytes: int, fan_in: int | None = None
) -> list[MergeGroup]:
    """Groups of segments that are smaller than the minimum; each group is no larger than the maximum.

    With ``fan_in`` a group has at least so many, and a large one waits until those after it are together as large. So
    what is merged again and again is written a few times, not each time anew.
    """
    return [
        MergeGroup(
            topic=topic.name,
            topic_id=topic.topic_id,
            generation=topic.generation,
            partition=partition.partition,
            segments=segments,
        )
        for topic in manifest.topics
        for partition in topic.partitions
        for group in _groups(partition.segments, min_segment_bytes, max_segment_bytes)
        if (segments := group if fan_in is None else _worth_merging(group, fan_in))
    ]


def compacted(
    previous: Manifest, merges: Sequence[Merge], *, number: int, run_id: str, created_ms: int
) -> tuple[Manifest, list[Merge]]:
    """The manifest after ``previous``, and the merges in it: those whose segments are still there, in a row."""
    wanted: dict[tuple[TopicName, TopicId, PartitionIndex], list[Merge]] = {}
    for merge in merges:
        wanted.setdefault((merge.group.topic, merge.group.topic_id, merge.group.partition), []).append(merge)
    taken: list[Merge] = []
    topics = [
        msgspec.structs.replace(
            topic,
            partitions=[
                _with_merges(entry, wanted.get((topic.name, topic.topic_id, entry.partition), []), taken)
                for entry in topic.partitions
            ],
        )
        for topic in previous.topics
    ]
    manifest = msgspec.structs.replace(
        previous,
        format_version=FORMAT_VERSION,
        number=number,
        run_id=run_id,
        created_ms=created_ms,
        topics=topics,
        compacted_from=previous.number,
    )
    check_manifest(manifest, previous)
    return manifest, taken


def _groups(
    segments: Iterable[SegmentEntry], min_segment_bytes: int, max_segment_bytes: int
) -> Iterator[list[SegmentEntry]]:
    group: list[SegmentEntry] = []
    for segment in segments:
        is_small = segment.size_bytes < min_segment_bytes and segment.superseded_from_offset is None
        has_room = sum(each.size_bytes for each in group) + segment.size_bytes <= max_segment_bytes
        if group and not (is_small and has_room and _follows(group[-1], segment)):
            if len(group) > 1:
                yield group
            group = []
        if is_small:
            group.append(segment)
    if len(group) > 1:
        yield group


def _worth_merging(group: list[SegmentEntry], fan_in: int) -> list[SegmentEntry]:
    """The end of the group in which no segment is larger than all behind it together; nothing if that is too few."""
    size_bytes, taken = 0, 0
    for segment in reversed(group):
        if taken >= fan_in and segment.size_bytes > size_bytes:
            break
        size_bytes += segment.size_bytes
        taken += 1
    return group[len(group) - taken :] if taken >= fan_in else []


def _follows(before: SegmentEntry, after: SegmentEntry) -> bool:
    """A first batch that begins before its segment, where a log was cut off inside it, can only stand first."""
    return before.end_offset == after.start_offset and after.first_offset >= after.start_offset


def _with_merges(entry: PartitionEntry, merges: Sequence[Merge], taken: list[Merge]) -> PartitionEntry:
    for merge in merges:
        old = merge.group.segments
        start = next((place for place, segment in enumerate(entry.segments) if segment == old[0]), None)
        if start is None or entry.segments[start : start + len(old)] != old:
            continue  # Another compaction has merged them, or a truncation cut them, since.
        segments = [*entry.segments[:start], merge.merged, *entry.segments[start + len(old) :]]
        entry = msgspec.structs.replace(entry, segments=segments)
        taken.append(merge)
    return entry


def merge_segments(
    storage: ObjectStorage, group: MergeGroup, *, cluster_id: str, codec: FrameCodec, attempt: str
) -> SegmentEntry:
    """``storage`` is the backup's own folder. When this returns, the new object is whole and durable."""
    header = SegmentHeader(
        cluster_id=cluster_id,
        topic=group.topic,
        topic_id=group.topic_id,
        partition=group.partition,
        generation=group.generation,
        start_offset=group.segments[0].start_offset,
    )
    writer = open_segment(storage, header, codec=codec, attempt=attempt)
    try:
        for entry in group.segments:
            _append(storage, group, entry, writer)
        merged = segment_entry(writer.name, writer.finish(group.segments[-1].end_offset))
        _compare(group, merged)
        writer.complete()
    except BaseException:
        writer.abort()
        raise
    return merged


def _append(storage: ObjectStorage, group: MergeGroup, entry: SegmentEntry, writer: SegmentWriter) -> None:
    reader = SegmentReader(StoredObject(storage, entry.name, entry.size_bytes))
    if (reader.header.topic_id, reader.header.partition) != (group.topic_id, group.partition):
        raise DamagedSegment(entry.name, "header", "it belongs to another partition")
    for batch in reader.batches(check_crcs=True):
        try:
            writer.append(batch.data, batch.summary)
        except ValueError as error:
            raise DamagedSegment(entry.name, "frames", str(error)) from None


def _compare(group: MergeGroup, merged: SegmentEntry) -> None:
    sources = group.segments
    smallest = [each.min_timestamp for each in sources if each.min_timestamp is not None]
    largest = [each.max_timestamp for each in sources if each.max_timestamp is not None]
    expected = {
        "first_offset": sources[0].first_offset,
        "last_offset": sources[-1].last_offset,
        "batch_count": sum(each.batch_count for each in sources),
        "record_count": sum(each.record_count for each in sources),
        "control_record_count": sum(each.control_record_count for each in sources),
        "batch_bytes": sum(each.batch_bytes for each in sources),
        "largest_batch_bytes": max(each.largest_batch_bytes for each in sources),
        "min_timestamp": min(smallest, default=None),
        "max_timestamp": max(largest, default=None),
    }
    for field, value in expected.items():
        if (found := getattr(merged, field)) != value:
            place = f"{sources[0].name} to {sources[-1].name}"
            raise DamagedSegment(place, "manifest", f"it says {field} {value}, and the batches say {found}")
