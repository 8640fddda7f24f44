"""Which aborted transactions the reader of a piece of the log must be told of, to leave their records out."""

from collections.abc import Iterable
from operator import attrgetter

from quorate.kernel.ids import Offset
from quorate.storage.reading import LogSlice, UncheckedSegment
from quorate.storage.state import LogState
from quorate.storage.transactions import AbortedTransaction


def aborted_transactions(state: LogState, piece: LogSlice, offset: Offset) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
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


def _collect(ended: Iterable[AbortedTransaction], end: Offset, found: list[AbortedTransaction]) -> bool:
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
