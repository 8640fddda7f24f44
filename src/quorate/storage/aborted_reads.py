"""Which aborted transactions the reader of a piece of the log must be told of, to leave their records out."""

from collections.abc import Iterator
from operator import attrgetter

from quorate.kernel.ids import Offset
from quorate.storage.reading import LogSlice
from quorate.storage.segment import Segment
from quorate.storage.state import LogState
from quorate.storage.transaction_index import AbortedTransaction


def aborted_transactions(state: LogState, piece: LogSlice, offset: Offset) -> list[AbortedTransaction]:
    if piece.length == 0:
        return []
    segments = [
        segment
        for segment in state.segments.starting_from(piece.segment_base_offset)
        if not segment.transaction_index.is_empty
    ]
    return _among(state, segments, piece, offset) if segments else []


def _among(state: LogState, segments: list[Segment], piece: LogSlice, offset: Offset) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    end = _end_of(state, piece)
    for aborted in _ended_from(segments, offset):
        if aborted.first_offset < end:
            found.append(aborted)
        if aborted.last_stable_offset >= end:
            break  # Whatever ends later has begun behind the piece.
    found.sort(key=attrgetter("first_offset"))
    return found


def _ended_from(segments: list[Segment], offset: Offset) -> Iterator[AbortedTransaction]:
    """The transactions that were aborted at or after the offset, in the order of their markers."""
    for segment in segments:
        yield from segment.transaction_index.ended_from(offset)


def _end_of(state: LogState, piece: LogSlice) -> Offset:
    """The offset of the first batch after the piece."""
    segment = state.segments.holding(piece.segment_base_offset)
    following = next(iter(segment.headers_from(piece.position + piece.length)), None)
    if following is not None:
        return following[1].base_offset
    return state.segments.next_base_after(segment) or state.log_end_offset
