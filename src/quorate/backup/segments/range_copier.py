"""Copies one range of a partition: what was fetched goes into segments, what is missing becomes gaps. Does I/O.

The segments and gaps of a result cover the range from its start to where it got, without a hole. A segment is opened by
its first batch, so a range without batches leaves no object. It is closed when it is large or old enough; it is named
in a result only when it is in the storage, whole and durable.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import msgspec

from quorate.backup.errors import BatchTooLarge, NameRefused
from quorate.backup.manifests.manifest import (
    AbortedTransactionEntry,
    Gap,
    GapReason,
    SegmentEntry,
    segment_entry,
)
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.storage import ObjectStorage
from quorate.backup.planning.ranges import OffsetRange, Placement, place
from quorate.backup.segments.batch_summary import BatchSummary, iterate_summaries
from quorate.backup.segments.layout import EpochStart, FrameCodec, SegmentHeader
from quorate.backup.segments.stretches import NO_STRETCH, StretchRules, follow
from quorate.backup.segments.writer import SegmentWriter, open_segment
from quorate.client.errors import OffsetOutOfRange
from quorate.client.fetch.batches import FetchedBatches, FetchRange, RangeFailed
from quorate.kernel.ids import NO_TOPIC_ID, Offset, TopicPartition
from quorate.kernel.ports import Buffer


class SegmentSettings(msgspec.Struct, frozen=True, kw_only=True):
    codec: FrameCodec = FrameCodec.NONE
    max_bytes: int = 128 * 1024 * 1024
    max_age_ms: int | None = None  # How long a segment stays open.


class RangeCopier:
    """Fed until ``result`` is there, or ``abort`` is called. ``fetch_range`` says what to fetch next.

    ``storage`` is the backup's own folder.
    """

    def __init__(
        self,
        storage: ObjectStorage,
        offset_range: OffsetRange,
        *,
        cluster_id: str,
        attempt: str,
        settings: SegmentSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self._storage = storage
        self._key = offset_range.key
        self._range = offset_range
        self._cluster_id = cluster_id
        self._attempt = attempt
        self._settings = settings
        self._now_ms = now_ms
        self._open: SegmentWriter | None = None
        self._opened_ms = 0
        self._covered_offset = offset_range.start_offset  # Below it all is in whole segments and in gaps.
        self._segments: list[SegmentEntry] = []
        self._gaps: list[Gap] = []
        self._leader_epochs: list[EpochStart] = []
        self._aborted: set[AbortedTransactionEntry] = set()
        self.next_offset = offset_range.start_offset  # What to fetch next.
        self.is_done = False  # Nothing of the range is left to be fetched.
        self.record_count = 0
        self.batch_bytes = 0
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
            start_offset=self.next_offset,
            end_offset=self._range.end_offset,
            topic_id=None if topic_id == NO_TOPIC_ID else topic_id,
        )

    def take(self, fetched: FetchedBatches) -> None:
        """Write the batches that belong to the range. The data is not used after this returns."""
        with self._ended_by_refusal():
            if self.result is None:
                self._take(fetched)

    def fail(self, failed: RangeFailed) -> None:
        """Note a gap and go on behind it where records were deleted; otherwise the range ends here."""
        with self._ended_by_refusal():
            if self.result is None:
                self._fail(failed)

    def pass_over_unreadable(self, sound_offset: Offset, reason: str) -> None:
        """Note that no sound batch can be had before this offset."""
        with self._ended_by_refusal():
            self.skip_to(sound_offset, GapReason.UNREADABLE, reason)
            if self.is_done:
                self.finish()

    def abort(self) -> None:
        """Give up the open segment; never fails. Those that are closed stay, as orphans."""
        if self._open is not None:
            self._open.abort()
            self._open = None

    def record(self, batch: Buffer, summary: BatchSummary) -> Placement:
        """Take the next batch that the broker sent, with its CRC checked; keep it if it is this range's.

        The bytes of a batch that is kept must stay as they are until another segment or the result is there.
        """
        placement, _ = self._record(memoryview(batch), 0, summary)
        return placement

    def skip_to(self, offset: Offset, reason: GapReason, detail: str = "") -> None:
        """Note that nothing can be had from ``next_offset`` up to ``offset``, and go on there."""
        start, end = self.next_offset, min(offset, self._range.end_offset)
        if start < end:
            self._cover(start)
            self._gaps.append(Gap(start_offset=start, end_offset=end, reason=reason, detail=detail))
            self._covered_offset = end
            # The log begins anew here, so the batch that contains the offset is nobody else's.
            self._range = msgspec.structs.replace(self._range, start_offset=end, is_first=True)
        self._advance(offset)

    def note_aborted(self, transactions: Iterable[AbortedTransactionEntry]) -> None:
        self._aborted.update(transactions)

    def finish(self, failure: str | None = None) -> RangeResult:
        """Close what is open. Without a failure the log has no more batches below the range's end."""
        if failure is None and not self.is_done:
            reached = self._range.end_offset
        else:
            reached = min(self.next_offset, self._range.end_offset)
        self._cover(reached)
        return self._end(failure)

    def _take(self, fetched: FetchedBatches) -> None:
        self._take_batches(fetched.data)
        self.note_aborted(
            AbortedTransactionEntry(each.first_offset, each.producer_id) for each in fetched.aborted_transactions
        )
        if fetched.is_last or self.is_done:
            self.finish()

    def _take_batches(self, data: memoryview) -> None:
        """A batch by its summary and the stretch behind it, and so on."""
        position = 0
        while position < len(data):
            _, first = next(iterate_summaries(data, position, strict=True))
            placement, position = self._record(data, position, first)
            if placement is Placement.BEYOND:
                break
        if self._open is not None:
            self._open.keep()

    def _record(self, data: memoryview, position: int, first: BatchSummary) -> tuple[Placement, int]:
        """Take a batch, and if it is this range's the stretch behind it, too; where that ends."""
        placement = place(self._range, first.base_offset, first.last_offset)
        end, next_offset = position + first.size_bytes, first.next_offset
        if placement is Placement.BEYOND:
            self.is_done = True
            self.next_offset = min(first.base_offset, self._range.end_offset)
            return placement, position
        if placement is Placement.INSIDE:
            segment = self._segment_for(first)
            segment.make_room(first)
            rest = follow(data, end, self._rules_behind(segment, first)) if end < len(data) else NO_STRETCH
            end += rest.size_bytes
            segment.append(data[position:end], first, rest)
            self.record_count += first.data_record_count + rest.data_record_count
            self.batch_bytes += end - position
            next_offset = segment.next_offset
        self._advance(next_offset)
        return placement, end

    def _rules_behind(self, segment: SegmentWriter, first: BatchSummary) -> StretchRules:
        """For batches that go into the segment's frame with this one, and belong to the range as it does."""
        room_bytes = min(segment.room_bytes, self._settings.max_bytes - segment.size_bytes)
        return StretchRules(
            room_bytes=room_bytes - first.size_bytes,
            next_offset=first.next_offset,
            end_offset=self._range.end_offset,
            ends_before=self._range.is_last,
            leader_epoch=segment.leader_epoch if first.leader_epoch < 0 else first.leader_epoch,
            is_compressed=first.is_compressed,
        )

    def _fail(self, failed: RangeFailed) -> None:
        error = failed.error
        if isinstance(error, OffsetOutOfRange) and error.is_below_log_start:
            self.skip_to(error.log_start_offset, GapReason.RETENTION, "deleted by the cluster during this run")
            if self.is_done:
                self.finish()
        else:
            self.finish(failure=str(error))

    @contextmanager
    def _ended_by_refusal(self) -> Iterator[None]:
        """A name that the storage refuses, or a batch that no segment takes, fails this partition and no other.

        What is in whole segments already counts.
        """
        try:
            yield
        except (NameRefused, BatchTooLarge) as error:
            self.abort()
            self._end(str(error))

    def _advance(self, offset: Offset) -> None:
        self.next_offset = max(self.next_offset, offset)
        self.is_done = self.is_done or self.next_offset >= self._range.end_offset

    def _segment_for(self, summary: BatchSummary) -> SegmentWriter:
        segment = self._open
        if segment is not None and self._is_full(segment, summary):
            self._cover(Offset(max(segment.next_offset, self._covered_offset)))
        if self._open is None:
            self._open = open_segment(
                self._storage, self._segment_header(), codec=self._settings.codec, attempt=self._attempt
            )
            self._opened_ms = self._now_ms()
        return self._open

    def _is_full(self, segment: SegmentWriter, summary: BatchSummary) -> bool:
        max_age_ms = self._settings.max_age_ms
        if max_age_ms is not None and self._now_ms() - self._opened_ms >= max_age_ms:
            return True
        return segment.size_bytes + summary.size_bytes > self._settings.max_bytes

    def _segment_header(self) -> SegmentHeader:
        return SegmentHeader(
            cluster_id=self._cluster_id,
            topic=self._range.topic,
            topic_id=self._range.topic_id,
            partition=self._range.partition,
            generation=self._range.generation,
            start_offset=self._covered_offset,
        )

    def _cover(self, end_offset: Offset) -> None:
        """The open segment answers for all offsets below the end; without one, the log had no batch there."""
        segment = self._open
        if segment is not None:
            finished = segment.finish(end_offset)
            segment.complete()
            self._open = None
            self._segments.append(segment_entry(segment.name, finished))
            self._leader_epochs += finished.footer.leader_epochs
        elif end_offset > self._covered_offset:
            self._gaps.append(Gap(start_offset=self._covered_offset, end_offset=end_offset, reason=GapReason.EMPTY))
        self._covered_offset = end_offset

    def _end(self, failure: str | None) -> RangeResult:
        self.result = RangeResult(
            key=self._key,
            attempt=self._attempt,
            reached_offset=self._covered_offset,
            segments=self._segments,
            gaps=self._gaps,
            leader_epochs=self._leader_epochs,
            aborted_transactions=sorted(self._aborted),
            failure=failure,
        )
        return self.result
