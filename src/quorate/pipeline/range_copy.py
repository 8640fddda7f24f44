"""Copies one range: decides what each fetched batch and each failure means for it, and writes segments. Does I/O.

What comes out tiles the range: segments and gaps follow each other from its start to the offset that was reached.
"""

from collections.abc import Callable

import msgspec

from quorate.backup.batch_summary import BatchSummary, iterate_summaries, summarize
from quorate.backup.manifest import AbortedTransaction, Gap, GapReason, SegmentEntry
from quorate.backup.merging import RangeResult
from quorate.backup.offset_ranges import OffsetRange, Placement, place
from quorate.backup.segment_layout import EpochStart
from quorate.backup.segment_sink import SegmentSink
from quorate.client.errors import OffsetOutOfRange
from quorate.client.fetched import FetchedBatch, FetchedBatches, FetchRange, RangeFailed
from quorate.kernel.ids import NO_TOPIC_ID, Offset

NewSink = Callable[[OffsetRange], SegmentSink]


class RangeCopy:
    """Fed with what was fetched until ``result`` is there. ``fetch_range`` says what to fetch next."""

    def __init__(self, offset_range: OffsetRange, attempt: str, new_sink: NewSink, now_ms: Callable[[], int]) -> None:
        self._range = offset_range  # What is left of it after a gap.
        self._key = offset_range.key
        self._attempt = attempt
        self._new_sink = new_sink
        self._now_ms = now_ms
        self._sink = new_sink(offset_range)
        self._next_offset = offset_range.start_offset
        self._segments: list[SegmentEntry] = []
        self._gaps: list[Gap] = []
        self._leader_epochs: list[EpochStart] = []
        self._aborted: set[AbortedTransaction] = set()
        self.result: RangeResult | None = None
        self.record_count = 0
        self.batch_bytes = 0

    @property
    def fetch_range(self) -> FetchRange:
        topic_id = self._range.topic_id
        return FetchRange(
            topic=self._range.topic,
            partition=self._range.partition,
            start_offset=self._range.start_offset,
            end_offset=self._range.end_offset,
            topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        )

    def take(self, fetched: FetchedBatches) -> None:
        """Write the batches that belong to the range. The data is not used after this returns."""
        if self.result is not None:
            return
        for batch in fetched.batches:
            summary = _summary(fetched.data, batch)
            match place(self._range, summary.base_offset, summary.last_offset):
                case Placement.INSIDE:
                    data = fetched.data[batch.position : batch.position + batch.size_bytes]
                    self._sink.append(data, summary, self._now_ms())
                    self._next_offset = summary.next_offset
                case Placement.BEYOND:
                    # The captured end lies inside this batch: the next run takes it whole.
                    self._finish(min(summary.base_offset, self._range.end_offset))
                    return
                case Placement.BEFORE:
                    pass
        for each in fetched.aborted_transactions:
            self._aborted.add(AbortedTransaction(each.first_offset, each.producer_id))
        if fetched.is_last:
            self._finish(self._range.end_offset)

    def fail(self, failed: RangeFailed) -> None:
        """Note a gap and go on behind it where records were deleted; otherwise the range ends here."""
        error = failed.error
        if self.result is not None:
            return
        if isinstance(error, OffsetOutOfRange) and error.is_below_log_start:
            self._pass_over(error.log_start_offset)
            return
        self._finish(max(self._next_offset, self._range.start_offset), failure=str(error))

    def abort(self) -> None:
        """Leave the open segment; never fails."""
        self._sink.abort()

    def _pass_over(self, log_start_offset: Offset) -> None:
        gap_start = self._next_offset
        gap_end = min(log_start_offset, self._range.end_offset)
        self._close_sink(gap_start)
        self._gaps.append(
            Gap(
                start_offset=gap_start,
                end_offset=gap_end,
                reason=GapReason.RETENTION,
                detail="deleted by the cluster during this run",
            )
        )
        self._next_offset = gap_end
        self._range = msgspec.structs.replace(self._range, start_offset=gap_end, is_first=True)
        self._sink = self._new_sink(self._range)
        if gap_end >= self._range.end_offset:
            self._finish(gap_end)

    def _finish(self, reached_offset: Offset, failure: str | None = None) -> None:
        reached_offset = min(reached_offset, self._range.end_offset)
        self._close_sink(reached_offset)
        self.result = RangeResult(
            key=self._key,
            attempt=self._attempt,
            reached_offset=reached_offset,
            segments=self._segments,
            gaps=self._gaps,
            leader_epochs=self._leader_epochs,
            aborted_transactions=sorted(self._aborted),
            failure=failure,
        )

    def _close_sink(self, end_offset: Offset) -> None:
        entries = self._sink.finish(end_offset)
        self._segments += entries
        self._leader_epochs += self._sink.leader_epochs
        self.record_count += self._sink.record_count
        self.batch_bytes += self._sink.batch_bytes
        covered = entries[-1].end_offset if entries else self._range.start_offset
        if covered < end_offset:
            self._gaps.append(Gap(start_offset=covered, end_offset=end_offset, reason=GapReason.EMPTY))


def _summary(data: memoryview, batch: FetchedBatch) -> BatchSummary:
    if batch.header is not None:
        return summarize(data, batch.position, batch.header)
    message = data[batch.position : batch.position + batch.size_bytes]
    return next(summary for _, summary in iterate_summaries(message, strict=True))
