"""Writes one segment into an object of the storage: named, framed and hashed in this one way. Does I/O.

Memory stays constant whatever the segment's size: a frame is gathered, written and forgotten. Batches that lie side by
side and fill a frame are not even copied.
"""

import hashlib

import msgspec

from quorate.backup.errors import BatchTooLarge
from quorate.backup.objects.names import segment_name
from quorate.backup.objects.storage import ObjectStorage, Upload
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.content import SegmentContent
from quorate.backup.segments.layout import (
    GATHERED_FRAME_BYTES,
    MAX_COMPRESSED_FRAME_BYTES,
    MAX_FRAME_BYTES,
    FrameCodec,
    IndexEntry,
    SegmentFooter,
    SegmentHeader,
    encode_footer,
    encode_frame,
    encode_frame_head,
    encode_header,
)
from quorate.backup.segments.stretches import NO_STRETCH, Stretch
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.kernel.ports import Buffer

INDEX_INTERVAL_BYTES = 1024 * 1024


class FinishedSegment(msgspec.Struct, frozen=True, kw_only=True):
    footer: SegmentFooter
    size_bytes: int
    sha256: str  # Of the whole object, as ``sha256sum`` tells it.


def open_segment(storage: ObjectStorage, header: SegmentHeader, *, codec: FrameCodec, attempt: str) -> "SegmentWriter":
    """``storage`` is the backup's own folder. An object of this name is nobody else's: the attempt is part of it."""
    name = segment_name(header.topic, header.topic_id, header.partition, header.start_offset, attempt)
    return SegmentWriter(name, storage.open_upload(name), header, codec)


class SegmentWriter:
    """Done after ``finish`` and ``complete``, or after ``abort``."""

    def __init__(
        self,
        name: str,
        upload: Upload,
        header: SegmentHeader,
        codec: FrameCodec = FrameCodec.NONE,
        *,
        frame_bytes: int = GATHERED_FRAME_BYTES,
    ) -> None:
        self.name = name
        self._upload = upload
        self._codec = codec
        self._frame_bytes = frame_bytes
        self._content = SegmentContent(header.start_offset)
        self._frame: _Frame | None = None
        # The batches of the open frame; where all are neighbours, they lie where they lay.
        self._payload = bytearray()
        self._borrowed: Buffer | None = None
        self._index: list[IndexEntry] = []
        self._indexed_batch_bytes = 0
        self._sha256 = hashlib.sha256()
        self._unsent = encode_header(header)
        self._sha256.update(self._unsent)
        self._written_bytes = len(self._unsent)

    @property
    def size_bytes(self) -> int:
        """How large the object would be if it ended now, without its footer."""
        return self._written_bytes + self._open_bytes

    @property
    def next_offset(self) -> Offset:
        """The offset behind the last batch."""
        return self._content.next_offset

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """The newest of the batches."""
        return self._content.leader_epoch

    @property
    def room_bytes(self) -> int:
        """What goes into the frame that is open, or into the next one."""
        return self._frame_bytes - self._open_bytes

    def make_room(self, batch: BatchSummary) -> None:
        """Close the frame if this batch, which comes next, does not go into it."""
        if batch.size_bytes > MAX_FRAME_BYTES:
            raise BatchTooLarge(
                f"the batch at offset {batch.base_offset} has {batch.size_bytes} bytes, "
                f"and a backup takes none over {MAX_FRAME_BYTES}"
            )
        if not self._frame_has_room_for(batch):
            self._upload.write(self._close_frame())

    def append(self, batches: Buffer, first: BatchSummary, rest: Stretch = NO_STRETCH) -> None:
        """Take whole batches whose CRCs are right: one, and a stretch behind it that goes into the same frame.

        They are not copied, so they must stay as they are until ``keep`` or ``finish``.
        """
        size_bytes = first.size_bytes + rest.size_bytes
        if len(batches) != size_bytes:
            raise ValueError(f"batch at offset {first.base_offset}: {len(batches)} bytes, not {size_bytes}")
        self.make_room(first)
        if self._frame is None:
            self._note_frame_start(first.base_offset)
        self._content.add(first)
        if self._frame is None:
            self._frame = _Frame(first)
        else:
            self._frame.add(first)
        if rest.batch_count:
            self._content.add_stretch(rest)
            self._frame.add_stretch(rest)
        self._hold(batches)
        if first.size_bytes >= self._frame_bytes:
            self._upload.write(self._close_frame())  # Large enough alone.

    def keep(self) -> None:
        """Copy what was not: the memory of all batches may be used again when this returns."""
        if self._borrowed is not None:
            self._payload += self._borrowed
            self._borrowed = None

    def finish(self, end_offset: Offset) -> FinishedSegment:
        """Write the rest. The segment answers for all offsets below ``end_offset``, and counts when it is complete."""
        pieces = self._close_frame()
        footer = self._content.footer(end_offset, self._index, self._sha256.hexdigest())
        encoded = encode_footer(footer)
        pieces.append(encoded)
        self._sha256.update(encoded)
        self._upload.write(pieces)
        size_bytes = self._written_bytes + len(encoded)
        return FinishedSegment(footer=footer, size_bytes=size_bytes, sha256=self._sha256.hexdigest())

    def complete(self) -> None:
        """The object is in the storage when this returns, whole and durable."""
        self._upload.complete()

    def abort(self) -> None:
        """Leave nothing behind; never fails."""
        self._upload.abort()

    def _note_frame_start(self, base_offset: Offset) -> None:
        if self._index and self._content.batch_bytes - self._indexed_batch_bytes < INDEX_INTERVAL_BYTES:
            return
        self._indexed_batch_bytes = self._content.batch_bytes
        self._index.append(IndexEntry(base_offset, self._written_bytes, self._content.max_timestamp))

    @property
    def _open_bytes(self) -> int:
        return len(self._payload) if self._borrowed is None else len(self._borrowed)

    def _hold(self, batches: Buffer) -> None:
        if self._borrowed is None and not self._payload:
            self._borrowed = batches
        else:
            self.keep()
            self._payload += batches

    def _frame_has_room_for(self, batch: BatchSummary) -> bool:
        if self._frame is None:
            return True
        return batch.size_bytes <= self.room_bytes and self._frame.is_compressed == batch.is_compressed

    def _close_frame(self) -> list[Buffer]:
        if self._frame is None:
            return []
        frame, payload = self._frame, self._payload if self._borrowed is None else self._borrowed
        self._frame, self._payload, self._borrowed = None, bytearray(), None
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

    def add_stretch(self, stretch: Stretch) -> None:
        self.batch_count += stretch.batch_count
        self.last_offset = stretch.last_offset
