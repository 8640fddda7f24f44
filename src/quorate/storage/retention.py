"""Deleting from the start of a log: by age, by size, and on request (DeleteRecords).

The new start of the log is durable before a file is removed, so it never moves back. Segments go whole; the first that
stays may hold records below the start, which nobody is shown any more.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import is_full
from quorate.storage.appending import roll
from quorate.storage.config import LogConfig
from quorate.storage.file_names import PRODUCER_SNAPSHOT, path_of
from quorate.storage.reading import UncheckedSegment
from quorate.storage.segment import Segment
from quorate.storage.state import LogState


def delete_records_before(state: LogState, offset: Offset) -> None:
    if offset > state.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE, f"cannot delete up to {offset}: the log ends at {state.log_end_offset}"
        )
    if offset > state.log_start_offset:
        _start_at(state, offset)
        _remove_below_start(state)


def apply_retention(state: LogState, now_ms: int, up_to_offset: Offset) -> list[Offset]:
    """Delete what the topic's settings no longer keep, below ``up_to_offset``; the base offsets of what was deleted."""
    if not state.config.deletes:
        return []
    ranges = state.segments.with_ends(state.log_end_offset)
    count = sum(1 for _, end in ranges if end <= up_to_offset)
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
            raise UncheckedSegment(segment)  # A flipped bit must not make it look old.
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
        # Nothing has changed: the log goes on as it is, and the next look may find room.
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"cannot move the start of {state.directory}: {error}"
        ) from error
    state.log_start_offset = offset
    if state.epochs.truncate_from_start(offset):
        state.durability.note_epochs(state.epochs.entries())


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
