"""Writes one segment out of several, batch by batch as they are. Does I/O.

Every frame and batch is checked as it is read, and what was written is compared with what the manifest says of the
sources before the object counts: damage stays where it is, and is never copied into a new, sound object.
"""

from quorate.backup.errors import DamagedSegment
from quorate.backup.manifests.manifest import SegmentEntry, segment_entry
from quorate.backup.objects.names import segment_name
from quorate.backup.objects.storage import ObjectStorage, StoredObject, Upload
from quorate.backup.retention.compaction import MergeGroup
from quorate.backup.segments.layout import FrameCodec, SegmentHeader
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.segments.writer import SegmentWriter


def merge_segments(
    storage: ObjectStorage, group: MergeGroup, *, cluster_id: str, codec: FrameCodec, attempt: str
) -> SegmentEntry:
    """``storage`` is the backup's own folder. When this returns, the new object is whole and durable."""
    first, last = group.segments[0], group.segments[-1]
    header = SegmentHeader(
        cluster_id=cluster_id,
        topic=group.topic,
        topic_id=group.topic_id,
        partition=group.partition,
        generation=group.generation,
        start_offset=first.start_offset,
    )
    name = segment_name(group.topic, group.topic_id, group.partition, first.start_offset, attempt)
    writer = SegmentWriter(header, codec)
    upload = storage.open_upload(name)
    try:
        for entry in group.segments:
            _append(storage, group, entry, writer, upload)
        pieces, finished = writer.finish(last.end_offset)
        merged = segment_entry(name, finished)
        _compare(group, merged)
        upload.write(pieces)
        upload.complete()
    except BaseException:
        upload.abort()
        raise
    return merged


def _append(
    storage: ObjectStorage, group: MergeGroup, entry: SegmentEntry, writer: SegmentWriter, upload: Upload
) -> None:
    reader = SegmentReader(StoredObject(storage, entry.name, entry.size_bytes))
    if (reader.header.topic_id, reader.header.partition) != (group.topic_id, group.partition):
        raise DamagedSegment(entry.name, "header", "it belongs to another partition")
    for batch in reader.batches(check_crcs=True):
        try:
            pieces = writer.append(batch.data, batch.summary)
        except ValueError as error:
            raise DamagedSegment(entry.name, "frames", str(error)) from None
        if pieces:
            upload.write(pieces)


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
