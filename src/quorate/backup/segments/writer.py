"""Writes one segment: batches go in, the bytes of the object come out, in pieces.

Memory stays constant whatever the segment's size: a frame is gathered, given out and forgotten. What a call gives out
may be a view of what went in, so it is to be stored before the caller uses its buffer again.
"""

import hashlib

import msgspec

from quorate.backup.errors import BatchTooLarge
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.content import SegmentContent
from quorate.backup.segments.frame_codec import FrameCodec, encode_frame
from quorate.backup.segments.layout import (
    GATHERED_FRAME_BYTES,
    MAX_COMPRESSED_FRAME_BYTES,
    MAX_FRAME_BYTES,
    IndexEntry,
    SegmentFooter,
    SegmentHeader,
    encode_footer,
    encode_frame_head,
    encode_header,
)
from quorate.kernel.buffers import Buffer
from quorate.kernel.ids import Offset

INDEX_INTERVAL_BYTES = 1024 * 1024


class FinishedSegment(msgspec.Struct, frozen=True, kw_only=True):
    footer: SegmentFooter
    size_bytes: int
    sha256: str  # Of the whole object, as ``sha256sum`` tells it.


class SegmentWriter:
    def __init__(
        self, header: SegmentHeader, codec: FrameCodec = FrameCodec.NONE, *, frame_bytes: int = GATHERED_FRAME_BYTES
    ) -> None:
        self._codec = codec
        self._frame_bytes = frame_bytes
        self._content = SegmentContent(header.start_offset)
        self._frame: _Frame | None = None
        self._payload = bytearray()  # The batches of the open frame.
        self._index: list[IndexEntry] = []
        self._indexed_batch_bytes = 0
        self._sha256 = hashlib.sha256()
        self._unsent = encode_header(header)
        self._sha256.update(self._unsent)
        self._written_bytes = len(self._unsent)

    @property
    def size_bytes(self) -> int:
        """How large the object would be if it ended now, without its footer."""
        return self._written_bytes + len(self._payload)

    @property
    def next_offset(self) -> Offset:
        """The offset behind the last batch."""
        return self._content.next_offset

    def append(self, batch: Buffer, summary: BatchSummary) -> list[Buffer]:
        """Take a whole batch; returns the pieces of the object that are ready, mostly none."""
        if len(batch) != summary.size_bytes:
            raise ValueError(f"batch at offset {summary.base_offset}: {len(batch)} bytes, not {summary.size_bytes}")
        if summary.size_bytes > MAX_FRAME_BYTES:
            raise BatchTooLarge(
                f"the batch at offset {summary.base_offset} has {summary.size_bytes} bytes, "
                f"and a backup takes none over {MAX_FRAME_BYTES}"
            )
        pieces: list[Buffer] = []
        if not self._frame_has_room_for(summary):
            pieces += self._close_frame()
        if self._frame is None:
            self._note_frame_start(summary.base_offset)
        self._content.add(summary)
        if summary.size_bytes >= self._frame_bytes:
            pieces += self._encode_frame(_Frame(summary), batch)  # Large enough alone: not copied.
        elif self._frame is None:
            self._frame = _Frame(summary)
            self._payload += batch
        else:
            self._frame.add(summary)
            self._payload += batch
        return pieces

    def finish(self, end_offset: Offset) -> tuple[list[Buffer], FinishedSegment]:
        """Give out the rest. The segment answers for all offsets below ``end_offset``."""
        pieces = self._close_frame()
        footer = self._content.footer(end_offset, self._index, self._sha256.hexdigest())
        encoded = encode_footer(footer)
        pieces.append(encoded)
        self._sha256.update(encoded)
        size_bytes = self._written_bytes + len(encoded)
        return pieces, FinishedSegment(footer=footer, size_bytes=size_bytes, sha256=self._sha256.hexdigest())

    def _note_frame_start(self, base_offset: Offset) -> None:
        if self._index and self._content.batch_bytes - self._indexed_batch_bytes < INDEX_INTERVAL_BYTES:
            return
        self._indexed_batch_bytes = self._content.batch_bytes
        self._index.append(IndexEntry(base_offset, self._written_bytes, self._content.max_timestamp))

    def _frame_has_room_for(self, summary: BatchSummary) -> bool:
        if self._frame is None:
            return True
        fits = len(self._payload) + summary.size_bytes <= self._frame_bytes
        return fits and self._frame.is_compressed == summary.is_compressed

    def _close_frame(self) -> list[Buffer]:
        if self._frame is None:
            return []
        frame, payload = self._frame, self._payload
        self._frame, self._payload = None, bytearray()
        return self._encode_frame(frame, payload)

    def _encode_frame(self, frame: "_Frame", payload: Buffer) -> list[Buffer]:
        is_compressible = not frame.is_compressed and len(payload) <= MAX_COMPRESSED_FRAME_BYTES
        encoded = None if not is_compressible else encode_frame(self._codec, payload)
        codec, stored = (FrameCodec.NONE, payload) if encoded is None else (self._codec, encoded)
        head = encode_frame_head(
            codec,
            stored,
            payload_size_bytes=len(payload),
            batch_count=frame.batch_count,
            base_offset=frame.base_offset,
            last_offset=frame.last_offset,
        )
        self._sha256.update(head)
        self._sha256.update(stored)
        self._written_bytes += len(head) + len(stored)
        begin, self._unsent = self._unsent + head, b""
        return [begin, stored]


class _Frame:
    """What is gathered for one frame. All of its batches are compressed by their producer, or none is."""

    __slots__ = ("base_offset", "batch_count", "is_compressed", "last_offset")

    def __init__(self, first: BatchSummary) -> None:
        self.batch_count = 1
        self.base_offset = first.base_offset
        self.last_offset = first.last_offset
        self.is_compressed = first.is_compressed

    def add(self, summary: BatchSummary) -> None:
        self.batch_count += 1
        self.last_offset = summary.last_offset
