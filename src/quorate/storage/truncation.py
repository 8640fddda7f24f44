"""Taking away the end of a log, or all of it. What is taken away is gone for good when these functions return.

The order protects against a crash at any point: first the recovery point is lowered, durably, so that recovery checks
everything above it; then later segments go; then the file that stays is cut and synced.

A worker thread may begin a sync meanwhile. So what it looks at, the end of the log and its segments, changes first:
then it claims nothing that is about to go, and opens no file that is gone.
"""

from quorate.kernel.ids import Offset
from quorate.storage.producer_recovery import rebuild_from_what_is_sound, remove_snapshots
from quorate.storage.producer_state import ProducerStates
from quorate.storage.reading import DamagedRecords, require_checked
from quorate.storage.segment import INDEXES_CHANGED, Segment
from quorate.storage.segments import Segments
from quorate.storage.state import LogState


def truncate_to(state: LogState, offset: Offset) -> None:
    """Make the log end at ``offset``, or before it where the offset is inside of a batch."""
    if offset >= state.log_end_offset:
        return
    if offset <= state.log_start_offset:
        truncate_fully_and_start_at(state, offset)
        return
    segment = state.segments.holding(offset)
    if segment.is_created:
        require_checked(segment)
        for damaged in segment.damage:
            raise DamagedRecords(segment, damaged)  # Where it would have to be cut, nobody can tell.
    position, end = _cut_at(segment, offset)
    if end < state.log_start_offset:
        # One batch holds the start of the log and the offset: without it the log is empty.
        truncate_fully_and_start_at(state, state.log_start_offset)
        return
    later = state.segments.based_above(segment.base_offset)
    state.truncations += 1
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
    state.recent.forget(end)
    _forget_cleaning(state, end)
    if state.epochs.truncate_from_end(end):
        state.durability.note_epochs(state.epochs.entries())
    state.durability.store_snapshots()
    producers, is_complete = rebuild_from_what_is_sound(
        state.disk, state.directory, state.segments, end, snapshot_up_to=end
    )
    producers.open_transactions.adopt_ended(state.producers.open_transactions, end)
    state.producers = producers
    state.producers_are_complete = state.producers_are_complete and is_complete


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
    state.epochs.truncate_from_end(Offset(0))
    state.durability.note_epochs(state.epochs.entries())
    state.durability.start_at(offset)
    state.producers = ProducerStates()


def _cut_at(segment: Segment, offset: Offset) -> tuple[int, Offset]:
    """Where the segment ends without the batches at or above ``offset``, and the log with it."""
    for position, header in segment.headers_from(segment.offset_index.position_for(offset)):
        if header.last_offset >= offset:
            return position, min(offset, header.base_offset)
    return segment.size_bytes, offset


def _forget_cleaning(state: LogState, end: Offset) -> None:
    """What comes after is new. A checkpoint that a crash leaves too high costs a round of compaction, no record."""
    if state.cleaned_up_to > end:
        state.store_cleaned_up_to(end)


def _remove(state: LogState, segments: list[Segment]) -> None:
    for segment in reversed(segments):
        segment.remove()
    state.disk.sync_directory(state.directory)
