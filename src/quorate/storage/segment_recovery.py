"""Checking one segment from the recovery point on, and cutting it off before the first batch that is not good."""

from collections.abc import Callable

import msgspec

from quorate.kernel.ids import Offset
from quorate.records.batch import BatchHeader
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.storage.batch_scan import read_batches, scan_headers
from quorate.storage.index_repair import note_stored_batches, trim_indexes
from quorate.storage.segment import INDEXES_CHANGED, PlacedBatch, Segment
from quorate.storage.segment_checksums import SegmentChecksums


class ScanResult(msgspec.Struct, frozen=True, kw_only=True):
    end_offset: Offset
    truncated_bytes: int = 0
    reason: str | None = None  # Why the rest was cut off.


def recover_segment(
    segment: Segment, recovery_point: Offset, index_interval_bytes: int, on_batch: Callable[[BatchHeader], None]
) -> ScanResult:
    """Leave good batches only, indexed and durable. ``on_batch`` sees each batch that was checked."""
    file_size = segment.file.size()
    known = _stored_checksums(segment, file_size)
    if known is not None and known.end_offset == recovery_point:
        next_offset = _skip_summed_up(segment, known, recovery_point, index_interval_bytes)
    else:
        next_offset = _skip_trusted(segment, file_size, recovery_point)
    checked_from = segment.size_bytes
    segment.is_checked = checked_from == 0
    reason = None
    try:
        for position, header, _ in read_batches(segment.file, checked_from, file_size):
            _require_follows(segment, header, next_offset)
            segment.note(PlacedBatch.of(header), position, index_interval_bytes)
            on_batch(header)
            next_offset = header.next_offset
    except (CorruptBatch, UnsupportedMagic) as error:
        reason = f"segment {segment.base_offset}, position {segment.size_bytes}: {error}"
        segment.cut(segment.size_bytes)
    else:
        if segment.size_bytes > checked_from:
            segment.file.sync()  # A killed process leaves data that is whole, but perhaps not on the disk yet.
        if segment.base_offset < recovery_point:
            # Offsets below were given out, also those whose records were compacted away: never a second time.
            next_offset = max(next_offset, recovery_point)
    return ScanResult(end_offset=next_offset, truncated_bytes=file_size - segment.size_bytes, reason=reason)


def _stored_checksums(segment: Segment, file_size: int) -> SegmentChecksums | None:
    """What a usable file of them says; one that tells of another log than this is removed."""
    known = segment.stored_checksums()
    if known is None or known.log_size_bytes > file_size:
        segment.drop_checksums()
        return None
    segment.summed_up_bytes = known.log_size_bytes
    return known


def _skip_summed_up(
    segment: Segment, known: SegmentChecksums, recovery_point: Offset, index_interval_bytes: int
) -> Offset:
    """The log was closed at the recovery point: whatever has happened to it since, its batches end where they ended."""
    if segment.indexes_match(known):
        segment.size_bytes = known.log_size_bytes
        segment.offset_index.keep_first_bytes(known.offset_index.size_bytes)
        segment.time_index.keep_first_bytes(known.time_index.size_bytes)
        segment.forget_from(recovery_point)
    else:
        note_stored_batches(segment, known.log_size_bytes, recovery_point, index_interval_bytes)
        segment.summed_up_bytes = INDEXES_CHANGED
    return recovery_point


def _skip_trusted(segment: Segment, file_size: int, recovery_point: Offset) -> Offset:
    """Set the segment to what is below the recovery point; return the lowest offset that may follow."""
    segment.size_bytes = file_size
    if segment.base_offset < recovery_point and trim_indexes(segment, recovery_point):
        position = _trusted_size(segment, file_size, recovery_point)
        if position is not None:
            segment.size_bytes = position
            segment.forget_from(recovery_point)
            return recovery_point
    segment.reset()
    return segment.base_offset


def _trusted_size(segment: Segment, file_size: int, recovery_point: Offset) -> int | None:
    """Where the batches below the recovery point end; None if they do not lead there, so that all must be checked."""
    position = segment.offset_index.position_for(Offset(recovery_point - 1))
    try:
        for start, header in scan_headers(segment.file, position, file_size):
            if header.base_offset >= recovery_point:
                return start
            position = start + header.size_bytes
            if header.last_offset >= recovery_point or position > file_size:
                return None
            if header.last_offset == recovery_point - 1:
                return position  # Without a look at what follows, which may be torn.
    except (CorruptBatch, UnsupportedMagic):
        return None
    return position


def _require_follows(segment: Segment, header: BatchHeader, next_offset: Offset) -> None:
    if header.base_offset < next_offset or header.last_offset_delta < 0:
        raise CorruptBatch(f"batch of offset {header.base_offset} where {next_offset} is next")
    if not segment.holds(header.last_offset):
        raise CorruptBatch(f"batch of offset {header.last_offset} is too far from the base of its segment")
