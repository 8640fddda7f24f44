"""Taking records away: the end of a log (truncation), or its start, by age, by size and on request (DeleteRecords).

A truncation is durable when it returns, and its order protects against a crash at any point: first the recovery point
is lowered, durably, so that recovery checks everything above it; then later segments are removed; then the file that
stays is cut and synced. A worker thread may begin a sync meanwhile. So the end of the log and its segments, which a
sync looks at, change first: it then claims nothing that is about to be removed, and opens no file that is.

A new start of the log is durable before a file is removed, so it never moves back. Segments are removed whole; the
first that stays may hold records below the start, which are no longer served.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import is_full
from quorate.storage.appending import roll
from quorate.storage.config import LogConfig
from quorate.storage.file_names import PRODUCER_SNAPSHOT, path_of
from quorate.storage.producer_snapshots import rebuild_from_what_is_sound, remove_snapshots
from quorate.storage.producer_state import ProducerStates
from quorate.storage.reading import DamagedRecords, UncheckedSegment, require_checked
from quorate.storage.segment import INDEXES_CHANGED, Segment, Segments
from quorate.storage.state import LogState, changes_log


@changes_log
def truncate_to(state: LogState, offset: Offset) -> None:
    """Make the log end at ``offset``, or before it where the offset is inside of a batch."""
    if offset >= state.log_end_offset:
        return
    if offset <= state.log_start_offset:
        truncate_fully_and_start_at(state, offset)
        return
    segment = state.segments.holding(offset)
    _require_undamaged(segment)
    position, end = _cut_at(segment, offset)
    if end < state.log_start_offset:
        # One batch holds the start of the log and the offset: without it the log is empty.
        truncate_fully_and_start_at(state, state.log_start_offset)
        return
    state.truncations += 1
    _remove_from(state, segment, position, end)
    state.recent.forget(end)
    _forget_cleaning(state, end)
    if state.epoch_cache.truncate_from_end(end):
        state.durability.note_epochs(state.epoch_cache.entries())
    _rebuild_producers(state, end)


@changes_log
def truncate_fully_and_start_at(state: LogState, offset: Offset) -> None:
    """Empty the log; its next record gets ``offset``, which may be below or above all that it had."""
    state.truncations += 1
    gone = list(state.segments)
    state.segments = Segments([Segment(state.disk, state.directory, offset, is_new=True)])
    state.log_start_offset = state.log_end_offset = offset
    state.durability.lower(offset)
    state.store_log_start(offset)
    remove_snapshots(state.disk, state.directory, above=Offset(-1))
    _remove(state, gone)
    state.recent.forget(offset)
    _forget_cleaning(state, offset)
    state.epoch_cache.truncate_from_end(Offset(0))
    state.durability.note_epochs(state.epoch_cache.entries())
    state.durability.start_at(offset)
    state.producers = ProducerStates()


def _require_undamaged(segment: Segment) -> None:
    if segment.is_created:
        require_checked(segment)
        for damaged in segment.damage:
            raise DamagedRecords(segment, damaged)  # Nothing tells where it would have to be cut.


def _cut_at(segment: Segment, offset: Offset) -> tuple[int, Offset]:
    """The end of the segment without the batches at or above ``offset``, and that of the log."""
    for position, header in segment.headers_from(segment.offset_index.position_for(offset)):
        if header.last_offset >= offset:
            return position, min(offset, header.base_offset)
    return segment.size_bytes, offset


def _remove_from(state: LogState, segment: Segment, position: int, end: Offset) -> None:
    """Remove the batches from the position on, and later segments, so that the log ends at ``end``."""
    later = state.segments.based_above(segment.base_offset)
    state.log_end_offset = end
    if later:
        state.segments.replace([segment, *later], [segment])
    state.durability.lower(end)
    remove_snapshots(state.disk, state.directory, above=end)
    if segment.summed_up_bytes == INDEXES_CHANGED or position < segment.summed_up_bytes:
        segment.drop_checksums()
    _remove(state, later)
    if segment.is_created:
        segment.cut(position)
        segment.forget_from(end)
        segment.transaction_index.truncate_to(end)


def _rebuild_producers(state: LogState, end: Offset) -> None:
    state.durability.store_snapshots()
    producers, is_complete = rebuild_from_what_is_sound(
        state.disk, state.directory, state.segments, end, snapshot_up_to=end
    )
    producers.open_transactions.adopt_ended(state.producers.open_transactions, end)
    state.producers = producers
    state.producers_are_complete = state.producers_are_complete and is_complete


def _forget_cleaning(state: LogState, end: Offset) -> None:
    """Later records will be new. A checkpoint that a crash leaves too high costs a round of compaction, no record."""
    if state.cleaned_up_to > end:
        state.store_cleaned_up_to(end)


def _remove(state: LogState, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.remove()
    state.disk.sync_directory(state.directory)


@changes_log
def delete_records_before(state: LogState, offset: Offset) -> None:
    """Move the start of the log up, durably. Raises OFFSET_OUT_OF_RANGE beyond the end."""
    if offset > state.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete up to {offset}: the log ends at {state.log_end_offset}"
        )
    if offset > state.log_start_offset:
        _start_at(state, offset)
        _remove_below_start(state)


@changes_log
def apply_retention(state: LogState, now_ms: int, *, up_to_offset: Offset | None = None) -> list[Offset]:
    """Delete segments by age and size, below ``up_to_offset`` (a high watermark); the base offsets of those."""
    if not state.config.deletes:
        return []
    limit = state.log_end_offset if up_to_offset is None else up_to_offset
    ranges = state.segments.with_ends(state.log_end_offset)
    count = sum(1 for _, end in ranges if end <= limit)
    eligible = [segment for segment, _ in ranges[:count] if segment.size_bytes]
    expired = max(_expired_by_time(eligible, state.config, now_ms), _expired_by_size(state, eligible))
    if expired == 0:
        return []
    last = eligible[expired - 1]
    if last is state.segments.active:
        roll(state)
    new_start = state.segments.next_base_after(last)
    assert new_start is not None
    _start_at(state, max(new_start, state.log_start_offset))
    return _remove_below_start(state)


def _expired_by_time(segments: list[Segment], config: LogConfig, now_ms: int) -> int:
    """How many segments from the first on are too old, by the newest record of each."""
    if config.retention_ms < 0:
        return 0
    for index, segment in enumerate(segments):
        newest = segment.max_timestamp().timestamp_ms
        if newest < 0 or now_ms - newest <= config.retention_ms:
            return index
        if not segment.indexes_are_checked:
            raise UncheckedSegment(segment)  # A flipped bit must not make it seem old.
    return len(segments)


def _expired_by_size(state: LogState, segments: list[Segment]) -> int:
    """How many segments from the first on the log can lose and still hold as much as it should keep."""
    if state.config.retention_bytes < 0:
        return 0
    excess = state.segments.size_bytes - state.config.retention_bytes
    for index, segment in enumerate(segments):
        excess -= segment.size_bytes
        if excess < 0:
            return index
    return len(segments)


def _start_at(state: LogState, offset: Offset) -> None:
    try:
        state.store_log_start(offset)
    except OSError as error:
        if not is_full(error):
            raise
        # Nothing has changed: the next attempt may find room.
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"cannot move the start of {state.directory}: {error}"
        ) from error
    state.log_start_offset = offset
    if state.epoch_cache.truncate_from_start(offset):
        state.durability.note_epochs(state.epoch_cache.entries())


def _remove_below_start(state: LogState) -> list[Offset]:
    ranges = state.segments.with_ends(state.log_end_offset)[:-1]
    removed = [segment for segment, end in ranges if end <= state.log_start_offset]
    if removed:
        kept = state.segments.next_after(removed[-1])
        assert kept is not None
        state.segments.replace([*removed, kept], [kept])
    for segment in removed:
        segment.remove()
        state.disk.remove(path_of(state.directory, segment.base_offset, PRODUCER_SNAPSHOT))
    return [segment.base_offset for segment in removed]
