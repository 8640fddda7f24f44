"""Copies one range: says what each fetched piece and each failure means for it. Does I/O, through its recorder."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quorate.backup.errors import BatchTooLarge, NameRefused
from quorate.backup.manifests.manifest import AbortedTransaction, GapReason
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.planning.ranges import OffsetRange, Placement
from quorate.backup.segments.batch_summary import BatchSummary, iterate_summaries, summarize
from quorate.backup.segments.range_recorder import RangeRecorder
from quorate.client.errors import OffsetOutOfRange
from quorate.client.fetch.batches import FetchedBatch, FetchedBatches, FetchRange, RangeFailed
from quorate.kernel.ids import NO_TOPIC_ID, Offset, TopicPartition


class RangeCopy:
    """Fed with what was fetched until ``result`` is there. ``fetch_range`` says what to fetch next."""

    def __init__(self, offset_range: OffsetRange, recorder: RangeRecorder, now_ms: Callable[[], int]) -> None:
        self._range = offset_range
        self._recorder = recorder
        self._now_ms = now_ms
        self.result: RangeResult | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self._range.topic, self._range.partition)

    @property
    def fetch_range(self) -> FetchRange:
        topic_id = self._range.topic_id
        return FetchRange(
            topic=self._range.topic,
            partition=self._range.partition,
            start_offset=self._recorder.next_offset,
            end_offset=self._range.end_offset,
            topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        )

    @property
    def record_count(self) -> int:
        return self._recorder.record_count

    @property
    def batch_bytes(self) -> int:
        return self._recorder.batch_bytes

    def take(self, fetched: FetchedBatches) -> None:
        """Write the batches that belong to the range. The data is not used after this returns."""
        with self._ended_by_refusal():
            if self.result is None:
                self._take(fetched)

    def _take(self, fetched: FetchedBatches) -> None:
        recorder = self._recorder
        now_ms = self._now_ms()
        for batch in fetched.batches:
            data = fetched.data[batch.position : batch.position + batch.size_bytes]
            if recorder.record(data, _summary(fetched.data, batch), now_ms) is Placement.BEYOND:
                break
        recorder.note_aborted(
            AbortedTransaction(each.first_offset, each.producer_id) for each in fetched.aborted_transactions
        )
        if fetched.is_last or recorder.is_done:
            self.result = recorder.finish()

    def fail(self, failed: RangeFailed) -> None:
        """Note a gap and go on behind it where records were deleted; otherwise the range ends here."""
        with self._ended_by_refusal():
            if self.result is None:
                self._fail(failed)

    def _fail(self, failed: RangeFailed) -> None:
        error, recorder = failed.error, self._recorder
        if isinstance(error, OffsetOutOfRange) and error.is_below_log_start:
            recorder.skip_to(error.log_start_offset, GapReason.RETENTION, "deleted by the cluster during this run")
            if recorder.is_done:
                self.result = recorder.finish()
        else:
            self.result = recorder.finish(failure=str(error))

    def pass_over_unreadable(self, sound_offset: Offset, reason: str) -> None:
        """Note that no sound batch can be had before this offset."""
        with self._ended_by_refusal():
            self._recorder.skip_to(sound_offset, GapReason.UNREADABLE, reason)
            if self._recorder.is_done:
                self.result = self._recorder.finish()

    @contextmanager
    def _ended_by_refusal(self) -> Iterator[None]:
        """A name that the storage refuses, or a batch that no segment takes, fails this partition and no other."""
        try:
            yield
        except (NameRefused, BatchTooLarge) as error:
            self.result = self._recorder.finish_with_what_is_stored(str(error))

    def abort(self) -> None:
        """Leave the open segment; never fails."""
        self._recorder.abort()


def _summary(data: memoryview, batch: FetchedBatch) -> BatchSummary:
    if batch.header is not None:
        return summarize(data, batch.position, batch.header)
    message = data[batch.position : batch.position + batch.size_bytes]
    return next(summary for _, summary in iterate_summaries(message, strict=True))
