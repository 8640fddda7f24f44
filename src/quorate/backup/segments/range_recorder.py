"""Records one attempt at a range: batches go to segments, what is missing becomes gaps. Does I/O, through its sink.

It owns the rule that a result's segments and gaps cover the range from its start to where it got, without a hole.
"""

from collections.abc import Iterable

import msgspec

from quorate.backup.manifests.manifest import AbortedTransaction, Gap, GapReason, SegmentEntry
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.planning.ranges import OffsetRange, Placement, place
from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.layout import EpochStart
from quorate.backup.segments.sink import SegmentSettings, SegmentSink
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer


class RangeRecorder:
    """``storage`` is the backup's own folder. After ``finish`` or ``abort`` the recorder is done."""

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
        self._key = offset_range.key
        self._range = offset_range
        self._cluster_id = cluster_id
        self._attempt = attempt
        self._settings = settings
        self._piece_start = offset_range.start_offset  # Below it all is covered by segments and gaps.
        self._sink = self._open_sink()
        self._segments: list[SegmentEntry] = []
        self._gaps: list[Gap] = []
        self._leader_epochs: list[EpochStart] = []
        self._aborted: set[AbortedTransaction] = set()
        self.next_offset = offset_range.start_offset  # What to fetch next.
        self.is_done = False
        self.record_count = 0
        self.batch_bytes = 0

    def record(self, batch: Buffer, summary: BatchSummary, now_ms: int = 0) -> Placement:
        """Take the next batch that the broker sent, with its CRC checked; keep it if it is this range's.

        The buffer may be used again when this returns.
        """
        placement = place(self._range, summary.base_offset, summary.last_offset)
        if placement is Placement.BEYOND:
            self.is_done = True
            self.next_offset = min(summary.base_offset, self._range.end_offset)
            return placement
        if placement is Placement.INSIDE:
            self._sink.append(batch, summary, now_ms)
            self.record_count += summary.data_record_count
            self.batch_bytes += summary.size_bytes
        self._advance(summary.next_offset)
        return placement

    def skip_to(self, offset: Offset, reason: GapReason, detail: str = "") -> None:
        """Note that nothing can be had from ``next_offset`` up to ``offset``, and go on there."""
        start, end = self.next_offset, min(offset, self._range.end_offset)
        if start < end:
            self._close_piece(start)
            self._gaps.append(Gap(start_offset=start, end_offset=end, reason=reason, detail=detail))
            self._piece_start = end
            # The log begins anew here, so the batch that contains the offset is nobody else's.
            self._range = msgspec.structs.replace(self._range, start_offset=end, is_first=True)
            self._sink = self._open_sink()
        self._advance(offset)

    def note_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._aborted.update(transactions)

    def finish(self, failure: str | None = None) -> RangeResult:
        """Close what is open. Without a failure the log has no more batches below the range's end."""
        if failure is None and not self.is_done:
            reached = self._range.end_offset
        else:
            reached = min(self.next_offset, self._range.end_offset)
        self._close_piece(reached)
        return self._result(reached, failure)

    def finish_with_what_is_stored(self, failure: str) -> RangeResult:
        """The storage does not take this partition's next object: what is in segments already counts."""
        self._sink.abort()
        reached = max(self._piece_start, self._sink.stored_offset)
        self._close_piece(reached)
        return self._result(reached, failure)

    def abort(self) -> None:
        """Give up; never fails."""
        self._sink.abort()

    def _result(self, reached: Offset, failure: str | None) -> RangeResult:
        return RangeResult(
            key=self._key,
            attempt=self._attempt,
            reached_offset=reached,
            segments=self._segments,
            gaps=self._gaps,
            leader_epochs=self._leader_epochs,
            aborted_transactions=sorted(self._aborted),
            failure=failure,
        )

    def _advance(self, offset: Offset) -> None:
        self.next_offset = max(self.next_offset, offset)
        self.is_done = self.is_done or self.next_offset >= self._range.end_offset

    def _close_piece(self, end_offset: Offset) -> None:
        segments = self._sink.finish(end_offset)
        self._segments += segments
        self._leader_epochs += self._sink.leader_epochs
        if not segments and end_offset > self._piece_start:
            self._gaps.append(Gap(start_offset=self._piece_start, end_offset=end_offset, reason=GapReason.EMPTY))

    def _open_sink(self) -> SegmentSink:
        return SegmentSink(
            self._storage,
            self._range,
            cluster_id=self._cluster_id,
            attempt=self._attempt,
            settings=self._settings,
        )
