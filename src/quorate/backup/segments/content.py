"""Counts, times and epochs over the batches of a segment: what its footer says of them. Pure."""

from quorate.backup.segments.batch_summary import BatchSummary
from quorate.backup.segments.layout import EpochStart, IndexEntry, SegmentFooter
from quorate.backup.segments.stretches import Stretch
from quorate.kernel.ids import NO_LEADER_EPOCH, Offset
from quorate.records.record import NO_TIMESTAMP

_NO_MINIMUM = 2**63  # Above every timestamp.


class SegmentContent:
    """Told of all batches in the order of their offsets."""

    def __init__(self, start_offset: Offset) -> None:
        self._start_offset = start_offset
        self._first_offset: Offset | None = None
        self._min_timestamp = _NO_MINIMUM
        self.leader_epoch = NO_LEADER_EPOCH
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
        if leader_epoch != self.leader_epoch and leader_epoch >= 0:
            self.leader_epoch = leader_epoch
            self._leader_epochs.append(EpochStart(leader_epoch, base_offset))

    def add_stretch(self, stretch: Stretch) -> None:
        """Take the batches of a stretch, which begins no epoch, behind another batch."""
        self._is_plain = self._is_plain and stretch.is_plain
        self._largest_batch_bytes = max(self._largest_batch_bytes, stretch.largest_batch_bytes)
        self.next_offset = Offset(stretch.last_offset + 1)
        self.batch_bytes += stretch.size_bytes
        self._batch_count += stretch.batch_count
        self._record_count += stretch.record_count
        self._control_record_count += stretch.control_record_count
        self.max_timestamp = max(self.max_timestamp, stretch.max_timestamp)
        if stretch.min_timestamp != NO_TIMESTAMP:
            self._min_timestamp = min(self._min_timestamp, stretch.min_timestamp)

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
