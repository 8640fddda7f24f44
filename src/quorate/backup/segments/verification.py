"""Checks a segment object against itself and against the manifest, by reading it. The bytes come from a source.

The quick check reads the object once and compares its size and SHA-256. The deep one also opens every frame, checks
the CRC of every batch, counts again and compares with the footer and the manifest. Who wants the batches as well as the
quick check gets both from one reading.
"""

import hashlib
from collections.abc import Iterator

import msgspec

from quorate.backup.errors import DamagedSegment
from quorate.backup.manifests.manifest import SegmentEntry, segment_entry
from quorate.backup.objects.names import partition_folder
from quorate.backup.segments.content import SegmentContent
from quorate.backup.segments.layout import IndexEntry, LayoutFault, SegmentFooter, SegmentHeader
from quorate.backup.segments.reader import READ_AHEAD_BYTES, SegmentReader, SegmentSource, SequentialBytes, StoredBatch
from quorate.backup.segments.writer import FinishedSegment


def verify_hash(source: SegmentSource, entry: SegmentEntry) -> None:
    """Raise ``DamagedSegment`` unless size and SHA-256 are those of the manifest."""
    _check_size(source, entry)
    sha256 = hashlib.sha256()
    position = 0
    while position < source.size_bytes:
        data = source.read(position, min(READ_AHEAD_BYTES, source.size_bytes - position))
        if not data:
            raise DamagedSegment(source.name, f"byte {position}", "the object ends too early")
        sha256.update(data)
        position += len(data)
    _check_hash(source, entry, sha256.hexdigest())


def verified_batches(source: SegmentSource, entry: SegmentEntry) -> Iterator[StoredBatch]:
    """Every batch, its CRC checked. ``DamagedSegment`` behind the last one unless the SHA-256 is the manifest's."""
    _check_size(source, entry)
    reader = SegmentReader(source)
    sha256 = hashlib.sha256()
    data = SequentialBytes(source, on_taken=sha256.update)
    try:
        data.take(reader.frames_position)
        for frame in reader.frames(check_crcs=True, data=data):
            yield from frame.batches
        data.take(source.size_bytes - reader.footer_position)
    except LayoutFault as error:
        raise DamagedSegment(source.name, "end", str(error)) from None
    _check_hash(source, entry, sha256.hexdigest())


def verify_deeply(source: SegmentSource, entry: SegmentEntry | None = None) -> SegmentFooter:
    """Raise ``DamagedSegment`` unless every byte, batch, count and time is right; returns the footer.

    Without an entry the segment is checked against itself only.
    """
    if entry is not None:
        _check_size(source, entry)
    reader = SegmentReader(source)
    sha256 = hashlib.sha256()
    data = SequentialBytes(source, on_taken=sha256.update)
    try:
        data.take(reader.frames_position)
        footer = _count_again(source, reader, data, sha256)
        data.take(source.size_bytes - reader.footer_position)
    except LayoutFault as error:
        raise DamagedSegment(source.name, "end", str(error)) from None
    _compare(source, "footer", footer, reader.footer)
    if entry is not None:
        _check_hash(source, entry, sha256.hexdigest())
        _check_place(source, entry, reader.header)
        finished = FinishedSegment(footer=footer, size_bytes=source.size_bytes, sha256=sha256.hexdigest())
        found = segment_entry(entry.name, finished)
        superseded_from = entry.superseded_from_offset
        _compare(source, "manifest", msgspec.structs.replace(found, superseded_from_offset=superseded_from), entry)
    return footer


def _count_again(
    source: SegmentSource, reader: SegmentReader, data: SequentialBytes, sha256: "hashlib._Hash"
) -> SegmentFooter:
    """The footer as the batches themselves ask for it."""
    content = SegmentContent(reader.header.start_offset)
    wanted = {each.position for each in reader.footer.index}
    index: list[IndexEntry] = []
    for frame in reader.frames(check_crcs=True, data=data):
        if frame.position in wanted:
            index.append(IndexEntry(frame.head.base_offset, frame.position, content.max_timestamp))
        for batch in frame.batches:
            try:
                content.add(batch.summary)
            except ValueError as error:
                raise DamagedSegment(source.name, f"frame at byte {frame.position}", str(error)) from None
    try:
        return content.footer(reader.footer.end_offset, index, sha256.hexdigest())
    except ValueError as error:
        raise DamagedSegment(source.name, "frames", str(error)) from None


def _check_size(source: SegmentSource, entry: SegmentEntry) -> None:
    if source.size_bytes != entry.size_bytes:
        fault = f"the object has {source.size_bytes} bytes, not the {entry.size_bytes} of the manifest"
        raise DamagedSegment(source.name, "size", fault)


def _check_hash(source: SegmentSource, entry: SegmentEntry, sha256: str) -> None:
    if sha256 != entry.sha256:
        raise DamagedSegment(source.name, "content", f"its SHA-256 is {sha256}, not {entry.sha256}")


def _check_place(source: SegmentSource, entry: SegmentEntry, header: SegmentHeader) -> None:
    folder = partition_folder(header.topic, header.topic_id, header.partition)
    if not entry.name.startswith(folder):
        raise DamagedSegment(source.name, "header", f"it belongs into {folder}")


def _compare(source: SegmentSource, with_what: str, found: msgspec.Struct, expected: msgspec.Struct) -> None:
    for field in found.__struct_fields__:
        if (value := getattr(found, field)) != (other := getattr(expected, field)):
            raise DamagedSegment(source.name, with_what, f"it says {field} {other}, and the batches say {value}")
