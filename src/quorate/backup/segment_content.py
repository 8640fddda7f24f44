"""What a footer says of a segment's batches: gathered as they are written, and again as they are verified. Pure."""

from quorate.backup.batch_summary import BatchSummary
from quorate.backup.segment_layout import EpochStart, IndexEntry, SegmentFooter
from quorate.kernel.ids import Offset
from quorate.records.record import NO_TIMESTAMP


class SegmentContent:
    """Counts, times and epochs over batches in the order of their offsets: what a footer says of them."""

    def __init__(self, start_offset: Offset) -> None:
        self._start_offset = start_offset
        self._first_offset: Offset | None = None
        self._min_timestamp: int | None = None
        self._leader_epochs: list[EpochStart] = []
        self._batch_count = 0
        self._record_count = 0
        self.next_offset = start_offset
        self.max_timestamp = NO_TIMESTAMP
        self.batch_bytes = 0

    def add(self, summary: BatchSummary) -> None:
        """Take the next batch; ``ValueError`` where its offsets do not follow."""
        if self._first_offset is None:
            self._check_first(summary)
            self._first_offset = summary.base_offset
        elif not self.next_offset <= summary.base_offset <= summary.last_offset:
            raise ValueError(
                f"batch of offsets {summary.base_offset} to {summary.last_offset} after offset {self.next_offset - 1}"
            )
        self.next_offset = summary.next_offset
        self._batch_count += 1
        self._record_count += summary.record_count
        self.batch_bytes += summary.size_bytes
        self._note_times(summary)
        if summary.leader_epoch >= 0:
            self._note_epoch(summary)

    def footer(self, end_offset: Offset, index: list[IndexEntry], content_sha256: str) -> SegmentFooter:
        if self._first_offset is None:
            raise ValueError("a segment without a batch")
        return SegmentFooter(
            start_offset=self._start_offset,
            end_offset=end_offset,
            first_offset=self._first_offset,
            last_offset=Offset(self.next_offset - 1),
            min_timestamp=self._min_timestamp,
            max_timestamp=None if self.max_timestamp == NO_TIMESTAMP else self.max_timestamp,
            batch_count=self._batch_count,
            record_count=self._record_count,
            batch_bytes=self.batch_bytes,
            leader_epochs=self._leader_epochs,
            index=index,
            content_sha256=content_sha256,
        )

    def _check_first(self, summary: BatchSummary) -> None:
        """The first batch may begin before the start: the log may have been cut off inside it."""
        if summary.last_offset < max(self._start_offset, summary.base_offset):
            raise ValueError(f"batch up to offset {summary.last_offset} in a segment from {self._start_offset}")

    def _note_times(self, summary: BatchSummary) -> None:
        self.max_timestamp = max(self.max_timestamp, summary.max_timestamp)
        if summary.min_timestamp != NO_TIMESTAMP and (
            self._min_timestamp is None or summary.min_timestamp < self._min_timestamp
        ):
            self._min_timestamp = summary.min_timestamp

    def _note_epoch(self, summary: BatchSummary) -> None:
        if not self._leader_epochs or self._leader_epochs[-1].leader_epoch != summary.leader_epoch:
            self._leader_epochs.append(EpochStart(summary.leader_epoch, summary.base_offset))
