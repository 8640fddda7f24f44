"""Reads a segment: all of its batches, or those from an offset or a time on. The bytes come from a source.

Whatever is wrong with the bytes, the reader says so with one ``DamagedSegment`` that names the object, the place in it
and the fault. It gives out no batch of a frame that does not match its CRC.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from quorate.backup.errors import DamagedSegment
from quorate.backup.segments.batch_summary import BatchSummary, iterate_summaries
from quorate.backup.segments.layout import (
    FRAME_HEAD_SIZE_BYTES,
    PREAMBLE_SIZE_BYTES,
    TRAILER_SIZE_BYTES,
    FrameHead,
    FrameNotDecodable,
    LayoutFault,
    SegmentFooter,
    SegmentHeader,
    check_frame,
    check_index,
    decode_frame,
    read_footer_body,
    read_frame_head,
    read_header_body,
    read_preamble,
    read_trailer,
)
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.errors import CorruptBatch, UnsupportedMagic

READ_AHEAD_BYTES = 4 * 1024 * 1024
_TAIL_BYTES = 64 * 1024  # Footer and trailer of most segments, in one request.


class SegmentSource(Protocol):
    """An object that can be read at any place."""

    @property
    def name(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, position: int, length: int) -> Buffer:
        """Exactly ``length`` bytes, or fewer where the object ends."""
        ...


class StoredBatch(NamedTuple):
    summary: BatchSummary
    data: memoryview  # The batch as the broker sent it.


class StoredFrame(NamedTuple):
    position: int
    head: FrameHead
    batches: list[StoredBatch]


class WholeFrame(NamedTuple):
    """A frame that matches its CRC, and whose batches were not looked at."""

    position: int
    head: FrameHead
    payload: Buffer


class SegmentReader:
    def __init__(self, source: SegmentSource) -> None:
        self._source = source
        self.footer, self.footer_position = _read_footer(source)
        self.header, self.frames_position = _read_header(source, self.footer_position)
        try:
            check_index(self.footer, self.frames_position, self.footer_position)
        except LayoutFault as error:
            raise DamagedSegment(source.name, "end", str(error)) from None

    def batches(
        self, *, from_offset: Offset | None = None, from_timestamp: int | None = None, check_crcs: bool = False
    ) -> Iterator[StoredBatch]:
        """Batches in order, beginning with the first that reaches ``from_offset`` and ``from_timestamp``.

        Times may be out of order, so batches behind the first may lie before the time that was asked for.
        """
        begun = False
        position = self._position_of(from_offset, from_timestamp)
        for frame in self.frames(position, check_crcs=check_crcs):
            for batch in frame.batches:
                begun = begun or _reaches(batch.summary, from_offset, from_timestamp)
                if begun:
                    yield batch

    def frames(
        self, position: int | None = None, *, check_crcs: bool = False, data: "SequentialBytes | None" = None
    ) -> Iterator[StoredFrame]:
        """Frames from ``position`` on, which must be a frame's, or from the first; ``data`` must stand there."""
        for frame in self.whole_frames(position, data=data):
            yield StoredFrame(frame.position, frame.head, self.batches_of(frame, check_crcs=check_crcs))

    def whole_frames(
        self, position: int | None = None, *, data: "SequentialBytes | None" = None
    ) -> Iterator[WholeFrame]:
        """The same, not taken apart."""
        position = self.frames_position if position is None else position
        data = data or SequentialBytes(self._source, position, ends=[each.position for each in self.footer.index])
        while position < self.footer_position:
            frame = self._read_frame(data, position)
            yield frame
            position += FRAME_HEAD_SIZE_BYTES + frame.head.stored_size_bytes

    def batches_of(self, frame: WholeFrame, *, check_crcs: bool = False) -> list[StoredBatch]:
        try:
            batches = _split(frame.payload, frame.head.batch_count, check_crcs)
            _check_batches(frame.head, batches)
        except (LayoutFault, CorruptBatch, UnsupportedMagic) as error:
            raise self._damaged(frame.position, error) from None
        return batches

    def _read_frame(self, data: "SequentialBytes", position: int) -> WholeFrame:
        try:
            head = read_frame_head(data.take(FRAME_HEAD_SIZE_BYTES))
            if head.stored_size_bytes > self.footer_position - position - FRAME_HEAD_SIZE_BYTES:
                raise LayoutFault("the frame reaches into the footer")
            stored = data.take(head.stored_size_bytes)
            check_frame(head, stored)
            payload = decode_frame(head.codec, stored, head.payload_size_bytes)
        except (LayoutFault, FrameNotDecodable) as error:
            raise self._damaged(position, error) from None
        return WholeFrame(position, head, payload)

    def _damaged(self, position: int, error: Exception) -> DamagedSegment:
        return DamagedSegment(self._source.name, f"frame at byte {position}", str(error))

    def _position_of(self, from_offset: Offset | None, from_timestamp: int | None) -> int:
        """The last indexed frame before which nothing is wanted."""
        index = self.footer.index
        entry = len(index)
        if from_offset is not None:
            entry = min(entry, bisect_right(index, from_offset, key=lambda each: each.base_offset))
        if from_timestamp is not None:
            entry = min(entry, bisect_left(index, from_timestamp, key=lambda each: each.max_timestamp_before))
        if (from_offset is None and from_timestamp is None) or entry == 0:
            return self.frames_position
        return index[entry - 1].position


class SequentialBytes:
    """Reads a source from a position on, in large pieces. ``on_taken`` sees all that is taken, for a hash.

    Pieces end at one of the ``ends`` where that is possible: what is taken up to there is not copied.
    """

    def __init__(
        self,
        source: SegmentSource,
        position: int = 0,
        *,
        window_bytes: int = READ_AHEAD_BYTES,
        ends: Sequence[int] = (),
        on_taken: Callable[[memoryview], None] | None = None,
    ) -> None:
        self._source = source
        self._on_taken = on_taken
        self._position = position  # Of the first byte that was not read yet.
        self._window = memoryview(b"")
        self._window_bytes = window_bytes
        self._ends = ends

    def take(self, length: int) -> memoryview:
        """The next bytes; ``LayoutFault`` where the object ends before them."""
        taken, self._window = self._window[:length], self._window[length:]
        if len(taken) < length:
            missing = length - len(taken)
            window = self._read(missing)
            # Only what lies across two windows is copied.
            taken = memoryview(b"".join((taken, window[:missing]))) if taken else window[:missing]
            self._window = window[missing:]
        if self._on_taken is not None:
            self._on_taken(taken)
        return taken

    def _read(self, length: int) -> memoryview:
        wanted = min(max(length, self._window_bytes), max(self._source.size_bytes - self._position, 0))
        end = bisect_right(self._ends, self._position + wanted) - 1
        if end >= 0 and self._ends[end] >= self._position + length:
            wanted = self._ends[end] - self._position
        data = memoryview(self._source.read(self._position, wanted))
        if len(data) < length:
            raise LayoutFault(f"the object ends at byte {self._position + len(data)}, too early")
        self._position += len(data)
        return data


def _read_footer(source: SegmentSource) -> tuple[SegmentFooter, int]:
    """The footer and its position."""
    smallest = PREAMBLE_SIZE_BYTES + TRAILER_SIZE_BYTES
    if source.size_bytes < smallest:
        raise DamagedSegment(source.name, "end", f"its {source.size_bytes} bytes are fewer than any segment has")
    tail_position = max(0, source.size_bytes - _TAIL_BYTES)
    tail = _read_exactly(source, tail_position, source.size_bytes - tail_position)
    trailer_position = source.size_bytes - TRAILER_SIZE_BYTES
    try:
        size_bytes, crc = read_trailer(tail[-TRAILER_SIZE_BYTES:])
        footer_position = trailer_position - size_bytes
        if footer_position < PREAMBLE_SIZE_BYTES:
            raise LayoutFault(f"a footer of {size_bytes} bytes has no room in it")
        if footer_position >= tail_position:
            body = tail[footer_position - tail_position : -TRAILER_SIZE_BYTES]
        else:
            body = _read_exactly(source, footer_position, size_bytes)
        return read_footer_body(body, crc), footer_position
    except LayoutFault as error:
        raise DamagedSegment(source.name, "end", str(error)) from None


def _read_header(source: SegmentSource, footer_position: int) -> tuple[SegmentHeader, int]:
    """The header, and the position behind it."""
    try:
        size_bytes, crc = read_preamble(_read_exactly(source, 0, PREAMBLE_SIZE_BYTES))
        if PREAMBLE_SIZE_BYTES + size_bytes > footer_position:
            raise LayoutFault(f"a header of {size_bytes} bytes has no room in it")
        body = _read_exactly(source, PREAMBLE_SIZE_BYTES, size_bytes)
        return read_header_body(body, crc), PREAMBLE_SIZE_BYTES + size_bytes
    except LayoutFault as error:
        raise DamagedSegment(source.name, "beginning", str(error)) from None


def _read_exactly(source: SegmentSource, position: int, length: int) -> memoryview:
    data = memoryview(source.read(position, length))
    if len(data) != length:
        raise DamagedSegment(source.name, f"byte {position + len(data)}", "the object ends too early")
    return data


def _split(payload: Buffer, batch_count: int, check_crcs: bool) -> list[StoredBatch]:
    """No more of them than the head says, and one to tell that there are more."""
    view = memoryview(payload)
    summaries = iterate_summaries(view, strict=True, check_crcs=check_crcs)
    batches: list[StoredBatch] = []
    last_offset = -1
    for position, summary in islice(summaries, batch_count + 1):
        if not last_offset < summary.base_offset <= summary.last_offset:
            raise LayoutFault(f"its batches are out of order at offset {summary.base_offset}")
        last_offset = summary.last_offset
        batches.append(StoredBatch(summary, view[position : position + summary.size_bytes]))
    return batches


def _check_batches(head: FrameHead, batches: list[StoredBatch]) -> None:
    if len(batches) != head.batch_count or not batches:
        raise LayoutFault(f"it holds {len(batches)} batches, not {head.batch_count}")
    if batches[0].summary.base_offset != head.base_offset or batches[-1].summary.last_offset != head.last_offset:
        raise LayoutFault("its batches have other offsets than its head says")


def _reaches(summary: BatchSummary, from_offset: Offset | None, from_timestamp: int | None) -> bool:
    if from_offset is not None and summary.last_offset < from_offset:
        return False
    return from_timestamp is None or summary.max_timestamp >= from_timestamp
