"""Judging the stored indexes of a segment, and making them anew from the log."""

from quorate.kernel.ids import Offset
from quorate.records.batch import HEADER_SIZE_BYTES, read_header
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.damage import LogExtent, find_damage
from quorate.storage.segment import INDEXES_CHANGED, PlacedBatch, Segment


def indexes_are_usable(segment: Segment, end: Offset) -> bool:
    """Whether both files hold whole entries and the last of each fits the log. Reads a few headers, not the files."""
    if not (segment.offset_index.stored_is_whole() and segment.time_index.stored_is_whole()):
        return False
    return _last_offset_entry_fits(segment) and _last_time_entry_fits(segment, end)


def seal(segment: Segment, end: Offset, index_interval_bytes: int) -> None:
    """Seal the active segment; what has rotted of its stored indexes is made anew first."""
    if not (segment.offset_index.is_as_stored and segment.time_index.is_as_stored):
        note_stored_batches(segment, segment.size_bytes, end, index_interval_bytes)
        if segment.summed_up_bytes:
            segment.summed_up_bytes = INDEXES_CHANGED
    segment.seal()


def rebuild_indexes(segment: Segment, end: Offset, index_interval_bytes: int) -> None:
    """Make both indexes from the headers of a segment whose content is trusted, and store them durably."""
    note_stored_batches(segment, segment.size_bytes, end, index_interval_bytes)
    segment.seal()
    for file in segment.files():
        file.sync()


def note_stored_batches(segment: Segment, size_bytes: int, end: Offset, index_interval_bytes: int) -> None:
    """Note anew what stands in the file, up to ``size_bytes`` and ``end``, and pass over what has rotted."""
    segment.size_bytes = size_bytes
    find_unreadable(segment, end)
    placed = [(position, PlacedBatch.of(header)) for position, header in segment.headers_from(0)]
    segment.reset()
    for position, batch in placed:
        segment.note(batch, position, index_interval_bytes)
    segment.size_bytes = size_bytes


def find_unreadable(segment: Segment, end: Offset) -> bool:
    """Note as damaged what keeps the headers from being read one after the other; whether there is anything."""
    if segment.damage:
        return True
    if _headers_follow(segment, end):
        return False
    extent = LogExtent(
        start=0,
        end=segment.size_bytes,
        first_offset=segment.base_offset,
        end_offset=end,
        epochs=(),
        may_have_holes=True,
    )
    segment.damage = tuple(find_damage(segment.file, extent))
    return True


def _headers_follow(segment: Segment, end: Offset) -> bool:
    """Whether each header can be read and leads to the next, up to the end of the file."""
    file_end, next_offset = 0, segment.base_offset
    try:
        for position, header in segment.headers_from(0):
            if header.base_offset < next_offset or header.last_offset_delta < 0 or header.next_offset > end:
                return False
            file_end, next_offset = position + header.size_bytes, header.next_offset
    except (CorruptBatch, UnsupportedMagic):
        return False
    return file_end == segment.size_bytes


def _last_offset_entry_fits(segment: Segment) -> bool:
    count = len(segment.offset_index)
    if count == 0:
        return True
    return _offset_entry_fits(segment, *segment.offset_index[count - 1])


def _offset_entry_fits(segment: Segment, relative: int, position: int) -> bool:
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
    return segment.base_offset <= offset < end and not _ends_later_than(segment, timestamp_ms, end)


def _ends_later_than(segment: Segment, timestamp_ms: int, end: Offset) -> bool:
    """Whether one of the last batches below ``end`` has a higher timestamp, which the time index should tell."""
    try:
        for _, header in segment.headers_from(segment.offset_index.position_for(Offset(end - 1))):
            if header.base_offset < end and header.max_timestamp > timestamp_ms:
                return True
            if header.next_offset >= end:
                return False  # Without a look at what follows, which may be torn.
    except (CorruptBatch, UnsupportedMagic):
        return True
    return False
