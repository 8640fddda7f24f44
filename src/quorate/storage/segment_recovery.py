"""Recovering one segment from its own log file: cut off before the first bad batch, its indexes checked or rebuilt.

``recover_segment`` checks the batches from the recovery point on. The other functions judge the stored indexes of a
segment whose content is trusted, and rebuild them from its headers.
"""

from collections.abc import Callable, Iterator, Sequence

import msgspec

from quorate.kernel.ids import Offset
from quorate.records.batch import HEADER_SIZE_BYTES, BatchHeader, read_header
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.batch_scan import scan_batches
from quorate.storage.checkpoints import EpochStart
from quorate.storage.damage import LogExtent, epoch_at, find_damage
from quorate.storage.segment import INDEXES_CHANGED, LoggedBatch, Segment
from quorate.storage.segment_checksums import SegmentChecksums

_BASE_OFFSET_BYTES = 8
#: For a log whose end is not known.
_NO_END = Offset(2**63 - 1)


class ScanResult(msgspec.Struct, frozen=True, kw_only=True):
    end_offset: Offset
    truncated_bytes: int = 0
    reason: str | None = None  # Why the rest was cut off.


def recover_segment(
    segment: Segment,
    recovery_point: Offset,
    index_interval_bytes: int,
    on_batch: Callable[[BatchHeader], None],
    *,
    stored_epochs: Sequence[EpochStart] | None = None,
) -> ScanResult:
    """Leave good batches only, indexed and durable. ``on_batch`` sees each batch that was checked.

    No CRC covers the leader epoch of a batch. Where ``stored_epochs`` are given, a batch of another epoch ends the log.

    Below the recovery point everything was durable: unreadable bytes there are damage, not the end of the log.
    """
    file_size = segment.file.size()
    known = _stored_checksums(segment, file_size)
    if known is not None and known.end_offset == recovery_point:
        next_offset = _skip_summed_up(segment, known, recovery_point, index_interval_bytes)
    else:
        next_offset = _skip_trusted(segment, file_size, recovery_point, index_interval_bytes)
    checked_from = segment.size_bytes
    # A segment that should hold durable batches and has none still has to be checked.
    segment.is_checked = checked_from == 0 and segment.base_offset >= recovery_point
    reason = None
    try:
        for position, header, _ in scan_batches(segment.file, checked_from, file_size):
            _require_follows(segment, header, next_offset)
            if (
                stored_epochs is not None
                and epoch_at(stored_epochs, header.base_offset) != header.partition_leader_epoch
            ):
                raise CorruptBatch(f"batch of epoch {header.partition_leader_epoch}, which was not stored")
            segment.note(LoggedBatch.of(header), position, index_interval_bytes)
            on_batch(header)
            next_offset = header.next_offset
    except (CorruptBatch, UnsupportedMagic) as error:
        reason = f"segment {segment.base_offset}, position {segment.size_bytes}: {error}"
        segment.cut(segment.size_bytes)
    else:
        if segment.size_bytes > checked_from:
            segment.file.sync()  # A killed process leaves whole batches that may not be on the disk yet.
        if segment.base_offset < recovery_point:
            # Offsets below were assigned, perhaps to records that were compacted away: never a second time.
            next_offset = max(next_offset, recovery_point)
    return ScanResult(end_offset=next_offset, truncated_bytes=file_size - segment.size_bytes, reason=reason)


def _stored_checksums(segment: Segment, file_size: int) -> SegmentChecksums | None:
    """The stored checksums, if they fit the log; a file that does not is removed."""
    known = segment.stored_checksums()
    if known is None or known.log_size_bytes > file_size:
        segment.drop_checksums()
        return None
    segment.summed_up_bytes = known.log_size_bytes
    return known


def _skip_summed_up(segment: Segment, known: SegmentChecksums, end_offset: Offset, index_interval_bytes: int) -> Offset:
    """Skip what the checksums cover. The log was closed at ``end_offset``, even if it was damaged since."""
    if segment.indexes_match(known):
        segment.size_bytes = known.log_size_bytes
        segment.offset_index.keep_first_bytes(known.offset_index.size_bytes, known.offset_index.crc)
        segment.time_index.keep_first_bytes(known.time_index.size_bytes, known.time_index.crc)
        segment.reopen()
    else:
        note_stored_batches(segment, known.log_size_bytes, end_offset, index_interval_bytes)
        segment.summed_up_bytes = INDEXES_CHANGED
    return end_offset


def _skip_trusted(segment: Segment, file_size: int, recovery_point: Offset, index_interval_bytes: int) -> Offset:
    """Set the segment to what is below ``recovery_point``, noted again; return the lowest offset that may follow.

    Its stored indexes are not used: after a crash they may be torn.
    """
    position, end_offset = _trusted_part(segment, file_size, recovery_point)
    segment.damage = ()
    if position == 0:
        segment.reset()
        return segment.base_offset
    note_stored_batches(segment, position, end_offset, index_interval_bytes)
    if segment.summed_up_bytes:
        segment.summed_up_bytes = INDEXES_CHANGED
    return end_offset


def _trusted_part(segment: Segment, file_size: int, recovery_point: Offset) -> tuple[int, Offset]:
    """The end in the file of the batches below ``recovery_point``, and the offset after them."""
    if segment.base_offset >= recovery_point:
        return 0, segment.base_offset
    sound_end, following, next_sound = 0, segment.base_offset, file_size
    for position, header in _readable_headers(segment, file_size):
        if header.base_offset >= recovery_point:
            next_sound = position
            break
        if header.next_offset > recovery_point:
            return 0, segment.base_offset  # A batch across the recovery point: not what was trusted.
        sound_end, following = position + header.size_bytes, header.next_offset
    # The first unreadable bytes lie after the trusted batches if all of those are there, or if their offset says so.
    is_all = following == recovery_point or _base_offset_at(segment, sound_end) >= recovery_point
    return (sound_end if is_all else next_sound), recovery_point


def _base_offset_at(segment: Segment, position: int) -> int:
    """The base offset in the first bytes there, of a whole batch or of the rest of one."""
    content = segment.file.read(position, _BASE_OFFSET_BYTES)
    return int.from_bytes(content, signed=True) if len(content) == _BASE_OFFSET_BYTES else -1


def _readable_headers(segment: Segment, file_size: int) -> Iterator[tuple[int, BatchHeader]]:
    """The headers in the file, without those that cannot be read."""
    segment.size_bytes = file_size
    find_unreadable(segment, _NO_END)
    return segment.headers_from(0)


def _require_follows(segment: Segment, header: BatchHeader, next_offset: Offset) -> None:
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        raise CorruptBatch(f"batch of offset {header.base_offset} where {next_offset} is next")
    if not segment.holds(header.last_offset):
        raise CorruptBatch(f"batch of offset {header.last_offset} is too far from the base of its segment")


def indexes_are_usable(segment: Segment, end: Offset) -> bool:
    """Whether both files hold whole entries and the last of each fits the log. Reads a few headers, not the files."""
    if not (segment.offset_index.stored_is_whole() and segment.time_index.stored_is_whole()):
        return False
    return _last_offset_entry_fits(segment) and _last_time_entry_fits(segment, end)


def seal(segment: Segment, end: Offset, index_interval_bytes: int) -> None:
    """Seal the active segment; indexes that are damaged in their files are rebuilt first."""
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
    """Note again all sound batches in the file, up to ``size_bytes`` and ``end``."""
    segment.size_bytes = size_bytes
    find_unreadable(segment, end)
    placed = [(position, LoggedBatch.of(header)) for position, header in segment.headers_from(0)]
    segment.reset()
    for position, batch in placed:
        segment.note(batch, position, index_interval_bytes)
    segment.size_bytes = size_bytes


def find_unreadable(segment: Segment, end: Offset) -> bool:
    """Note as damaged what keeps the headers from being read one after the other; returns whether there is any."""
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
                return False  # What follows may be torn, and is not read.
    except (CorruptBatch, UnsupportedMagic):
        return True
    return False
