"""Transactions as a round of compaction meets them: which batches were aborted, which markers may go.

Only what is stable is compacted, so every transaction that is met has ended. The records of an aborted one go at once,
and supersede nothing. A marker must stay as long as a batch of its transaction does: without it the batch would belong
to whatever its producer wrote next.
"""

from bisect import bisect_right
from collections.abc import Iterable
from operator import attrgetter

from quorate.kernel.ids import Offset, ProducerId
from quorate.records.batch import BatchHeader
from quorate.storage.transaction_index import AbortedTransaction

_FIRST_OFFSET = attrgetter("first_offset")


class CleanedTransactions:
    """For one pass over the log, from its start on."""

    __slots__ = ("_aborted", "_met")

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted: dict[ProducerId, list[AbortedTransaction]] = {}
        for transaction in sorted(aborted, key=_FIRST_OFFSET):
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        # Producers with a batch since their last marker.
        self._met: set[ProducerId] = set()

    def meet(self, header: BatchHeader) -> bool:
        """Whether a batch of records was aborted."""
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return self._aborted_with(header.producer_id, header.base_offset) is not None

    def meet_marker(self, header: BatchHeader) -> bool:
        """Whether a marker has done its work: nothing of its transaction was met."""
        has_batches = header.producer_id in self._met
        self._met.discard(header.producer_id)
        return not has_batches

    def ended_at(self, header: BatchHeader) -> AbortedTransaction | None:
        """The aborted transaction that the marker ended, if it is known to have had records."""
        transaction = self._aborted_with(header.producer_id, header.base_offset)
        return transaction if transaction is not None and transaction.last_offset == header.base_offset else None

    def _aborted_with(self, producer_id: ProducerId, offset: Offset) -> AbortedTransaction | None:
        """The aborted transaction of the producer that the offset is in; its transactions never overlap."""
        transactions = self._aborted.get(producer_id)
        if transactions is None:
            return None
        index = bisect_right(transactions, offset, key=_FIRST_OFFSET)
        if index == 0 or transactions[index - 1].last_offset < offset:
            return None
        return transactions[index - 1]
