"""Which transactions of a partition are not restored: aborted ones, unfinished ones, those not all inside the window.

Whether a transaction was committed is known only from the marker behind its data. So a partition is read once to find
those that are left out; they are few. The data of all others is restored as plain data: who reads the target sees what
a read-committed consumer saw at the source.
"""

from bisect import bisect_right
from collections.abc import Iterable

import msgspec

from quorate.backup.objects.stored_documents import StoredOffset, StoredProducerId
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader
from quorate.records.control import EndTransactionMarker


class ExcludedTransaction(msgspec.Struct, frozen=True, array_like=True, order=True):
    """The transactional batches of this producer from the first to the last offset."""

    producer_id: StoredProducerId
    first_offset: StoredOffset
    last_offset: StoredOffset


class _Open(msgspec.Struct):
    number: int
    epoch: ProducerEpoch
    first_offset: Offset
    last_offset: Offset
    is_inside: bool  # All of its records so far are in the time window.


class TransactionTracker:
    """Told of every transactional batch and every marker in order; each transaction gets a number of its own."""

    def __init__(self) -> None:
        self.excluded: list[ExcludedTransaction] = []
        self.excluded_numbers: set[int] = set()
        self.unfinished = 0
        self._open: dict[ProducerId, _Open] = {}
        self._count = 0

    def add_data(self, header: BatchHeader, *, is_inside: bool) -> int:
        """The number of the transaction that the batch belongs to."""
        producer_id = header.producer_id
        found = self._open.get(producer_id)
        if found is not None and found.epoch != header.producer_epoch:
            self._cut_off(producer_id)  # Its marker is not in the backup: a transaction has one epoch.
            found = None
        if found is None:
            self._count += 1
            found = _Open(self._count, header.producer_epoch, header.base_offset, header.last_offset, is_inside)
            self._open[producer_id] = found
        found.last_offset = header.last_offset
        found.is_inside = found.is_inside and is_inside
        return found.number

    def end(self, producer_id: ProducerId, marker: EndTransactionMarker) -> None:
        found = self._open.pop(producer_id, None)
        if found is not None and not (marker.is_commit and found.is_inside):
            self._exclude(producer_id, found)

    def cut_off(self) -> None:
        """The backup ends here, or something is missing: how the open transactions ended is not known."""
        for producer_id in list(self._open):
            self._cut_off(producer_id)

    def _cut_off(self, producer_id: ProducerId) -> None:
        self.unfinished += 1
        self._exclude(producer_id, self._open.pop(producer_id))

    def _exclude(self, producer_id: ProducerId, found: _Open) -> None:
        self.excluded.append(ExcludedTransaction(producer_id, found.first_offset, found.last_offset))
        self.excluded_numbers.add(found.number)


class Exclusions:
    """Looks up whether a batch belongs to an excluded transaction."""

    def __init__(self, excluded: Iterable[ExcludedTransaction]) -> None:
        self._by_producer: dict[ProducerId, list[ExcludedTransaction]] = {}
        for each in sorted(excluded):
            self._by_producer.setdefault(each.producer_id, []).append(each)

    def covers(self, header: BatchHeader) -> bool:
        if not header.is_transactional or header.producer_id not in self._by_producer:
            return False
        found = self._by_producer[header.producer_id]
        place = bisect_right(found, header.base_offset, key=lambda each: each.first_offset)
        return place > 0 and header.base_offset <= found[place - 1].last_offset
