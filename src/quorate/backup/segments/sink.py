"""Writes what is copied of one range into segments of the storage, one after the other. Does I/O.

A segment is opened by its first batch, so a range without batches leaves no object. It is closed when it is large or
old enough. What the sink returns is in the storage, whole and durable, before a caller can name it in a manifest.
"""

import msgspec

from quorate.backup.manifests.manifest import SegmentEntry, segment_entry
from quorate.backup.objects.names import segment_name
from quorate.backup.objects.storage import ObjectStorage, Upload
from quorate.backup.planning.ranges import OffsetRange
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.layout import EpochStart, FrameCodec, SegmentHeader
from quorate.backup.segments.writer import SegmentWriter
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer


class SegmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    codec: FrameCodec = FrameCodec.NONE
    max_bytes: int = 128 * 1024 * 1024
    max_age_ms: int | None = None  # How long a segment stays open, by the times that ``append`` is told.


class SegmentSink:
    """``storage`` is the backup's own folder. After ``finish`` or ``abort`` the sink is done."""

    def __init__(
        self,
        storage: ObjectStorage,
        offset_range: OffsetRange,
        *,
        cluster_id: str,
        attempt: str,
        settings: SegmentSettings,
    ) -> None:
        self._storage = storage
        self._range = offset_range
        self._cluster_id = cluster_id
        self._attempt = attempt
        self._settings = settings
        self._open: _OpenSegment | None = None
        self._next_start = offset_range.start_offset
        self._entries: list[SegmentEntry] = []
        self._leader_epochs: list[EpochStart] = []
        self.record_count = 0
        self.batch_bytes = 0

    @property
    def stored_offset(self) -> Offset:
        """Below it all is in finished segments."""
        return self._next_start

    @property
    def leader_epochs(self) -> list[EpochStart]:
        """Where each leader epoch begins, over all finished segments."""
        return self._leader_epochs

    def append(self, batch: Buffer, summary: BatchSummary, now_ms: int = 0) -> None:
        """Take a whole batch whose CRC is right. The buffer may be used again when this returns."""
        segment = self._open
        if segment is not None and self._is_full(segment, summary, now_ms):
            self._close(Offset(max(segment.writer.next_offset, self._next_start)))
            segment = None
        if segment is None:
            segment = self._open = self._begin(now_ms)
        pieces = segment.writer.append(batch, summary)
        if pieces:
            segment.upload.write(pieces)
        self.record_count += summary.data_record_count
        self.batch_bytes += summary.size_bytes

    def finish(self, end_offset: Offset) -> list[SegmentEntry]:
        """Close the last segment, which answers for all offsets below ``end_offset``; returns all of them.

        Where the list ends before ``end_offset``, the log had no batch there: the caller notes an empty gap.
        """
        if self._open is not None:
            self._close(end_offset)
        return self._entries

    def abort(self) -> None:
        """Give up the open segment. Those that are closed stay, as orphans."""
        if self._open is not None:
            self._open.upload.abort()
            self._open = None

    def _is_full(self, segment: "_OpenSegment", summary: BatchSummary, now_ms: int) -> bool:
        max_age_ms = self._settings.max_age_ms
        if max_age_ms is not None and now_ms - segment.opened_ms >= max_age_ms:
            return True
        return segment.writer.size_bytes + summary.size_bytes > self._settings.max_bytes

    def _begin(self, now_ms: int) -> "_OpenSegment":
        header = SegmentHeader(
            cluster_id=self._cluster_id,
            topic=self._range.topic,
            topic_id=self._range.topic_id,
            partition=self._range.partition,
            generation=self._range.generation,
            start_offset=self._next_start,
        )
        name = segment_name(header.topic, header.topic_id, header.partition, header.start_offset, self._attempt)
        writer = SegmentWriter(header, self._settings.codec)
        return _OpenSegment(name, writer, self._storage.open_upload(name), now_ms)

    def _close(self, end_offset: Offset) -> None:
        segment = self._open
        assert segment is not None
        pieces, finished = segment.writer.finish(end_offset)
        segment.upload.write(pieces)
        segment.upload.complete()
        self._open = None
        self._next_start = end_offset
        self._entries.append(segment_entry(segment.name, finished))
        self._leader_epochs += finished.footer.leader_epochs


class _OpenSegment:
    __slots__ = ("name", "opened_ms", "upload", "writer")

    def __init__(self, name: str, writer: SegmentWriter, upload: Upload, opened_ms: int) -> None:
        self.name = name
        self.writer = writer
        self.upload = upload
        self.opened_ms = opened_ms
