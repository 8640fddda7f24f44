"""Puts restored batches at the offsets that they had at the source, one right behind the other.

The source has no record at some offsets: compacted away, aborted, a marker, left out by the restore, before the log's
start. A batch ends where the next one begins, as a compacted one does, and where there is none before a hole, an empty
batch covers it. So each batch begins where the log ends, and its sequence can be its offset.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from quorate.backup.restore.batches import RestoredBatch, as_produced
from quorate.kernel.ids import Offset
from quorate.records.batch import DetachedBatch, detach, patch_last_offset_delta, read_header
from quorate.records.builder import build_batch

#: A leader takes a batch for a repetition if one of a producer's last five has its sequences, which begin anew after
#: 2^31: so that many batches must be smaller than that together.
MAX_SPAN: Final = 2**28


class PlacedBatch(NamedTuple):
    """A batch as a producer sends it, but for its producer's id, epoch, sequence and CRC."""

    data: DetachedBatch
    offset_count: int
    record_count: int


def placed_batches(batches: Iterable[RestoredBatch], start: Offset, end: Offset) -> Iterator[PlacedBatch]:
    """Cover ``start`` up to, not including, ``end``; the batches lie in there, in order and with their own offsets."""
    position = start
    held: RestoredBatch | None = None
    for batch in batches:
        base_offset = read_header(batch.data).base_offset
        yield from _cover(held, position, base_offset)
        held, position = batch, base_offset
    yield from _cover(held, position, end)


def _cover(batch: RestoredBatch | None, start: Offset, end: Offset) -> Iterator[PlacedBatch]:
    position = start
    if batch is not None:
        own_end = read_header(batch.data).next_offset
        position = max(own_end, min(end, Offset(start + MAX_SPAN)))
        yield _placed(batch, position)
    while position < end:
        next_position = min(end, Offset(position + MAX_SPAN))
        yield _empty(position, next_position)
        position = next_position


def _placed(batch: RestoredBatch, end: Offset) -> PlacedBatch:
    base_offset = read_header(batch.data).base_offset
    data = as_produced(batch, base_offset)
    patch_last_offset_delta(data.header, 0, end - 1 - base_offset)
    return PlacedBatch(data, end - base_offset, batch.record_count)


def _empty(start: Offset, end: Offset) -> PlacedBatch:
    data = build_batch([], base_offset=start, last_offset_delta=end - 1 - start)
    return PlacedBatch(detach(data), end - start, 0)
