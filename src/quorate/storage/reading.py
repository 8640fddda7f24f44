"""Finding the bytes that answer a fetch. The data itself is never read here: the caller sends it from the file."""

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import DiskFile
from quorate.records.errors import CorruptBatch
from quorate.storage.damage import DamagedRange
from quorate.storage.segment import Segment
from quorate.storage.state import LogState
from quorate.storage.transactions import TransactionIndexEntry


class UncheckedSegment(KafkaError):
    """The segment was written before the process started: it has to be checked before it is read."""

    def __init__(self, segment: Segment) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"{segment.path} is being checked")
        self.segment = segment


class DamagedRecords(CorruptBatch):
    """The records are damaged on this disk."""

    def __init__(self, segment: Segment, damaged: DamagedRange) -> None:
        super().__init__(f"records {damaged.first_offset} to {damaged.end_offset - 1} of {segment.path} are damaged")
        self.segment = segment


def require_checked(segment: Segment) -> None:
    """Raises ``UncheckedSegment`` where the files may have been damaged since they were written or checked."""
    if not segment.is_checked or not segment.indexes_are_checked:
        raise UncheckedSegment(segment)


class LogSlice(msgspec.Struct, frozen=True):
    """Whole batches in one file. Holding it keeps the file readable, also when its segment is deleted or replaced."""

    file: DiskFile | None  # None where there is nothing to read.
    position: int
    length: int
    segment_base_offset: Offset

    def read(self) -> bytes:
        return self.file.read(self.position, self.length) if self.file is not None and self.length else b""


def read(
    state: LogState, offset: Offset, *, max_bytes: int, up_to_offset: Offset, minimum_one_batch: bool = False
) -> LogSlice:
    """Find whole batches from the one that holds ``offset`` on, all of them below ``up_to_offset``.

    As in Kafka the first batch may start before the offset, and the slice ends with its segment at the latest.
    With ``minimum_one_batch`` the first batch is in it even if it is larger than ``max_bytes``.
    """
    state.require_usable()
    if not state.log_start_offset <= offset <= state.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {offset} is not in {state.log_start_offset} to {state.log_end_offset}",
        )
    segment: Segment | None = state.segments.holding(offset)
    if offset >= up_to_offset:
        assert segment is not None
        return LogSlice(None, 0, 0, segment.base_offset)
    while segment is not None:
        start, end = _range_in(
            state,
            segment,
            offset,
            max_bytes=max_bytes,
            up_to_offset=up_to_offset,
            minimum_one_batch=minimum_one_batch,
        )
        if start < segment.size_bytes:
            return LogSlice(segment.file if end > start else None, start, end - start, segment.base_offset)
        # Compaction may have taken the end of a segment, or all of it: the next record is in a later one.
        segment = state.segments.next_after(segment)
    return LogSlice(None, 0, 0, state.segments.active.base_offset)


def _range_in(
    state: LogState, segment: Segment, offset: Offset, *, max_bytes: int, up_to_offset: Offset, minimum_one_batch: bool
) -> tuple[int, int]:
    """Start and end of the batches in the segment's file; both its size where the segment has none."""
    size = segment.size_bytes
    recent = state.recent
    if segment is state.segments.active and recent.knows(offset):
        start = recent.start_of(offset, size)
        limit = size if up_to_offset >= state.log_end_offset else recent.start_of(up_to_offset, size)
        if limit - start <= max_bytes:
            return start, max(start, limit)
        end = recent.boundary_at_or_before(start + max_bytes, size)
        first_end = recent.start_after(start, size)
    else:
        require_checked(segment)
        state.keep_open(segment)
        start = segment.position_of(offset)
        if segment.damage:
            _require_sound(segment, offset)
            size = segment.sound_until(start)
        next_base = state.segments.next_base_after(segment)
        is_whole = up_to_offset >= (state.log_end_offset if next_base is None else next_base)
        limit = size if is_whole else min(size, segment.position_of(up_to_offset))
        if limit - start <= max_bytes:
            return start, max(start, limit)
        end, first_end = _boundaries(segment, start, start + max_bytes)
    if end <= start and minimum_one_batch:
        end = first_end
    return start, max(start, end)


def _require_sound(segment: Segment, offset: Offset) -> None:
    for damaged in segment.damage:
        if damaged.first_offset <= offset < damaged.end_offset:
            raise DamagedRecords(segment, damaged)


def _boundaries(segment: Segment, start: int, limit: int) -> tuple[int, int]:
    """The last boundary between batches that is not beyond ``limit``, and the end of the batch at ``start``."""
    nearest = max(start, segment.offset_index.position_at_or_before(limit))
    end = nearest
    for position, header in segment.headers_from(nearest):
        if position + header.size_bytes > limit:
            segment.note_next_read(header.base_offset, position)
            first_end = position + header.size_bytes
            return end, first_end if position == start else end
        end = position + header.size_bytes
    return end, end


def aborted_transactions(state: LogState, piece: LogSlice, offset: Offset) -> list[TransactionIndexEntry]:
    """Those with records in what ``read`` has found from ``offset`` on, by their first offsets.

    A reader of committed records leaves their records out.
    """
    found: list[TransactionIndexEntry] = []
    if piece.length == 0:
        return found
    end: Offset | None = None
    for segment in state.segments.starting_from(piece.segment_base_offset):
        if segment.transaction_index.is_empty:
            continue
        if not segment.indexes_are_checked:
            raise UncheckedSegment(segment)
        if end is None:  # Looked up only where there is something to compare it with.
            end = _end_of(state, piece)
        if _collect(segment.transaction_index.ended_from(offset), end, found):
            break
    found.sort(key=attrgetter("first_offset"))
    return found


def _collect(ended: Iterable[TransactionIndexEntry], end: Offset, found: list[TransactionIndexEntry]) -> bool:
    """Add those that began before ``end``; whether all that did are found: what ends later has begun behind it."""
    for aborted in ended:
        if aborted.first_offset < end:
            found.append(aborted)
        if aborted.last_stable_offset >= end:
            return True
    return False


def _end_of(state: LogState, piece: LogSlice) -> Offset:
    """The offset of the first batch after the piece."""
    segment = state.segments.holding(piece.segment_base_offset)
    following = next(iter(segment.headers_from(piece.position + piece.length)), None)
    if following is not None:
        return following[1].base_offset
    return state.segments.next_base_after(segment) or state.log_end_offset
