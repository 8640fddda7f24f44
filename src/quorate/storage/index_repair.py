"""Judging the stored indexes of a segment, and making them anew from the log."""

from quorate.kernel.ids import Offset
from quorate.records.batch import HEADER_SIZE_BYTES, read_header
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.batch_scan import scan_headers
from quorate.storage.segment import PlacedBatch, Segment


def indexes_are_usable(segment: Segment, end: Offset) -> bool:
    """Whether both files hold whole entries and the last of each fits the log. Reads a few headers, not the files."""
    if not (segment.offset_index.stored_is_whole() and segment.time_index.stored_is_whole()):
        return False
    return _last_offset_entry_fits(segment) and _last_time_entry_fits(segment, end)


def rebuild_indexes(segment: Segment, index_interval_bytes: int) -> None:
    """Make both indexes from the headers of a segment whose content is trusted, and store them durably."""
    size_bytes = segment.size_bytes
    segment.reset()
    for position, header in scan_headers(segment.file, 0, size_bytes):
        if position + header.size_bytes > size_bytes:
            raise CorruptBatch(f"{segment.path} is cut off at {size_bytes}, inside of what was durable")
        segment.note(PlacedBatch.of(header), position, index_interval_bytes)
    segment.seal()
    for file in segment.files():
        file.sync()


def _last_offset_entry_fits(segment: Segment) -> bool:
    count = len(segment.offset_index)
    if count == 0:
        return True
    relative, position = segment.offset_index[count - 1]
    if not 0 <= position <= segment.size_bytes - HEADER_SIZE_BYTES:
        return False
    try:
        header = read_header(segment.file.read(position, HEADER_SIZE_BYTES))
    except (CorruptBatch, UnsupportedMagic):
        return False
    return header.last_offset - segment.base_offset == relative


def _last_time_entry_fits(segment: Segment, end: Offset) -> bool:
    last = segment.time_index.last()
    if last is None:
        return segment.size_bytes == 0
    timestamp_ms, offset = last
    if not segment.base_offset <= offset < end:
        return False
    # The last entry is the highest timestamp, so none of the last batches may have a higher one.
    last_headers = segment.headers_from(segment.offset_index.position_for(end))
    return all(header.max_timestamp <= timestamp_ms for _, header in last_headers if header.last_offset < end)
