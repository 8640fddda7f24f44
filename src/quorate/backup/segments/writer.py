"""Writes one segment into an object of the storage: named, framed and hashed in this one way. Does I/O.

Memory stays constant whatever the segment's size: a frame is gathered, written and forgotten.
"""

import hashlib

import msgspec

from quorate.backup.errors import BatchTooLarge
from quorate.backup.objects.names import segment_name
from quorate.backup.objects.storage import ObjectStorage, Upload
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.layout import (
    GATHERED_FRAME_BYTES,
    MAX_COMPRESSED_FRAME_BYTES,
    MAX_FRAME_BYTES,
    EpochStart,
    FrameCodec,
    IndexEntry,
    SegmentFooter,
    SegmentHeader,
    encode_footer,
    encode_frame,
    encode_frame_head,
    encode_header,
)
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset
from quorate.kernel.ports import Buffer
from quorate.records.record import NO_TIMESTAMP

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

    def append(self, batch: Buffer, summary: BatchSummary) -> None:
        """Take a whole batch whose CRC is right. The buffer may be used again when this returns."""
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
        if pieces:
            self._upload.write(pieces)

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


_NO_MINIMUM = 2**63  # Above every timestamp.


class SegmentContent:
    """Counts, times and epochs over batches in the order of their offsets: what a footer says of them."""

    def __init__(self, start_offset: Offset) -> None:
        self._start_offset = start_offset
        self._first_offset: Offset | None = None
        self._min_timestamp = _NO_MINIMUM
        self._leader_epoch = NO_LEADER_EPOCH
        self._leader_epochs: list[EpochStart] = []
        self._batch_count = 0
        self._record_count = 0
        self._control_record_count = 0
        self._largest_batch_bytes = 0
        self._is_plain = True
        self.next_offset = start_offset
        self.max_timestamp = NO_TIMESTAMP
        self.batch_bytes = 0

    def add(self, summary: BatchSummary) -> None:
        """Take the next batch; ``ValueError`` where its offsets do not follow."""
        (
            base_offset,
            last_offset,
            size_bytes,
            _,
            leader_epoch,
            record_count,
            min_timestamp,
            max_timestamp,
            _,
            is_plain,
            is_control,
        ) = summary
        if not self.next_offset <= base_offset <= last_offset:
            self._check_first(summary)
        if self._first_offset is None:
            self._first_offset = self.next_offset = base_offset
        if not is_plain or base_offset != self.next_offset:
            self._is_plain = False
        if size_bytes > self._largest_batch_bytes:  # noqa: PLR1730 (half the time of max())
            self._largest_batch_bytes = size_bytes
        self.next_offset = Offset(last_offset + 1)
        self.batch_bytes += size_bytes
        self._batch_count += 1
        self._record_count += record_count
        if is_control:
            self._control_record_count += record_count
        if max_timestamp > self.max_timestamp:  # noqa: PLR1730
            self.max_timestamp = max_timestamp
        if min_timestamp < self._min_timestamp and min_timestamp != NO_TIMESTAMP:
            self._min_timestamp = min_timestamp
        if leader_epoch != self._leader_epoch and leader_epoch >= 0:
            self._leader_epoch = leader_epoch
            self._leader_epochs.append(EpochStart(leader_epoch, base_offset))

    def footer(self, end_offset: Offset, index: list[IndexEntry], content_sha256: str) -> SegmentFooter:
        if self._first_offset is None:
            raise ValueError("a segment without a batch")
        return SegmentFooter(
            start_offset=self._start_offset,
            end_offset=end_offset,
            first_offset=self._first_offset,
            last_offset=Offset(self.next_offset - 1),
            min_timestamp=None if self._min_timestamp == _NO_MINIMUM else self._min_timestamp,
            max_timestamp=None if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp,
            batch_count=self._batch_count,
            record_count=self._record_count,
            control_record_count=self._control_record_count,
            batch_bytes=self.batch_bytes,
            largest_batch_bytes=self._largest_batch_bytes,
            is_plain=self._is_plain,
            leader_epochs=self._leader_epochs,
            index=index,
            content_sha256=content_sha256,
        )

    def _check_first(self, summary: BatchSummary) -> None:
        """The first batch may begin before the start: the log may have been cut off inside it."""
        base_offset, last_offset = summary.base_offset, summary.last_offset
        if self._first_offset is None and last_offset >= max(self._start_offset, base_offset):
            return
        raise ValueError(
            f"batch of offsets {base_offset} to {last_offset} where offset {self.next_offset} was expected"
        )
