"""Reads through one source partition before a restore, and tells exactly what will be written of it.

Its result decides everything that a restore does: which transactions are left out, how many records each target
partition gets from each segment, and how large the largest batch is. The same rules make the batches here and when
they are written, so that the counts are not estimates.
"""

from collections import deque
from collections.abc import Iterable

import msgspec

from quorate.backup.manifests.manifest import SegmentEntry
from quorate.backup.restore.batches import RecordRules, Span, header_of, in_window, records_of, restored_batches
from quorate.backup.restore.transactions import ExcludedTransaction, TransactionTracker
from quorate.backup.segments.reader import StoredBatch
from quorate.kernel.ids import Offset, PartitionIndex
from quorate.records.batch import BatchHeader
from quorate.records.control import read_end_transaction_marker
from quorate.records.record import iterate_records

_NO_TRANSACTION = 0


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What one target partition gets of a source partition."""

    target: PartitionIndex
    segment_counts: list[int]  # Records from each segment, in order.
    spans: list[Span]  # The source offsets of those records, in order.

    @property
    def record_count(self) -> int:
        return sum(self.segment_counts)


class PartitionSurvey(msgspec.Struct, frozen=True, kw_only=True):
    partition: PartitionIndex
    excluded: list[ExcludedTransaction] = []
    unfinished_transactions: int = 0
    shares: list[Share] = []
    batch_bytes: int = 0
    largest_batch_bytes: int = 0

    @property
    def record_count(self) -> int:
        return sum(share.record_count for share in self.shares)


class Surveyor:
    """Told of every stored batch of a partition, in order, and at which offsets something is missing."""

    def __init__(self, rules: RecordRules, losses: Iterable[Offset] = ()) -> None:
        self._rules = rules
        self._losses = deque(sorted(losses))
        self._transactions = TransactionTracker()
        self._shares: dict[PartitionIndex, _Pieces] = {}
        self._totals: dict[int, _Totals] = {_NO_TRANSACTION: _Totals()}

    def add_segment(self, index: int, entry: SegmentEntry, batches: Iterable[StoredBatch]) -> None:
        for batch in live_batches(entry, batches):
            while self._losses and batch.summary.base_offset >= self._losses[0]:
                self._losses.popleft()
                self._transactions.cut_off()
            header = header_of(batch)
            if header is not None and header.is_control:
                self._end_transaction(batch, header)
                continue
            number = self._transaction_of(batch, header)
            for restored in restored_batches(batch, header, self._rules, entry.start_offset):
                self._shares.setdefault(restored.target, _Pieces()).add(index, number, restored.spans)
                size_bytes = len(restored.data)
                self._totals.setdefault(number, _Totals()).add(size_bytes, size_bytes)

    def add_whole_segment(self, index: int, entry: SegmentEntry) -> None:
        """The same for a segment that ``goes_whole``, without its batches."""
        span = Span(entry.first_offset, entry.record_count)
        self._shares.setdefault(self._rules.source_partition, _Pieces()).add(index, _NO_TRANSACTION, [span])
        self._totals[_NO_TRANSACTION].add(entry.batch_bytes, entry.largest_batch_bytes)

    def finish(self, segment_count: int) -> PartitionSurvey:
        self._transactions.cut_off()
        excluded = self._transactions.excluded_numbers
        kept = [totals for number, totals in self._totals.items() if number not in excluded]
        shares = [pieces.share(target, excluded, segment_count) for target, pieces in sorted(self._shares.items())]
        return PartitionSurvey(
            partition=self._rules.source_partition,
            excluded=sorted(self._transactions.excluded),
            unfinished_transactions=self._transactions.unfinished,
            shares=[share for share in shares if share.record_count],
            batch_bytes=sum(totals.batch_bytes for totals in kept),
            largest_batch_bytes=max((totals.largest_batch_bytes for totals in kept), default=0),
        )

    def _transaction_of(self, batch: StoredBatch, header: BatchHeader | None) -> int:
        if header is None or not header.is_transactional:
            return _NO_TRANSACTION
        return self._transactions.add_data(header, is_inside=_is_inside(batch, header, self._rules))

    def _end_transaction(self, batch: StoredBatch, header: BatchHeader) -> None:
        for record in iterate_records(batch.data):
            marker = read_end_transaction_marker(record)
            if marker is not None:
                self._transactions.end(header.producer_id, marker)


class _Totals(msgspec.Struct):
    batch_bytes: int = 0
    largest_batch_bytes: int = 0

    def add(self, batch_bytes: int, largest_batch_bytes: int) -> None:
        self.batch_bytes += batch_bytes
        self.largest_batch_bytes = max(self.largest_batch_bytes, largest_batch_bytes)


class _Piece(msgspec.Struct):
    segment: int
    transaction: int
    first_offset: Offset
    count: int


class _Pieces:
    """Spans in order, each with its segment and transaction, since what is left out is known only later."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def add(self, segment: int, transaction: int, spans: Iterable[Span]) -> None:
        for first_offset, count in spans:
            last = self._pieces[-1] if self._pieces else None
            if (
                last is not None
                and (last.segment, last.transaction) == (segment, transaction)
                and last.first_offset + last.count == first_offset
            ):
                last.count += count
            else:
                self._pieces.append(_Piece(segment, transaction, first_offset, count))

    def share(self, target: PartitionIndex, excluded: set[int], segment_count: int) -> Share:
        counts = [0] * segment_count
        spans: list[Span] = []
        for piece in self._pieces:
            if piece.transaction in excluded:
                continue
            counts[piece.segment] += piece.count
            if spans and spans[-1].first_offset + spans[-1].length == piece.first_offset:
                spans[-1] = Span(spans[-1].first_offset, spans[-1].length + piece.count)
            else:
                spans.append(Span(piece.first_offset, piece.count))
        return Share(target=target, segment_counts=counts, spans=spans)


def goes_whole(entry: SegmentEntry, rules: RecordRules) -> bool:
    """Whether all of its batches go to the target as they are: then its entry says all that a survey asks."""
    if not entry.is_plain or entry.superseded_from_offset is not None or entry.first_offset < entry.start_offset:
        return False
    if rules.partition_count is not None or entry.largest_batch_bytes > rules.max_batch_bytes:
        return False
    is_before_end = rules.end_ms is None or entry.max_timestamp is None or entry.max_timestamp <= rules.end_ms
    return rules.start_ms is None and is_before_end


def live_batches(entry: SegmentEntry, batches: Iterable[StoredBatch]) -> Iterable[StoredBatch]:
    """The batches without those that the cluster truncated after they were copied."""
    return (batch for batch in batches if batch.summary.base_offset < entry.live_end_offset)


def _is_inside(batch: StoredBatch, header: BatchHeader, rules: RecordRules) -> bool:
    if rules.start_ms is None and (rules.end_ms is None or header.max_timestamp <= rules.end_ms):
        return True
    return all(in_window(record.timestamp, rules) for record in records_of(batch, header))
