"""Which transactional batches a read-committed reader passes over.

A live cluster names the aborted transactions with every answer. A backup says whether a batch counts only in the marker
that ends its transaction, further on in the same partition.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from quorate.client.fetch.batches import AbortedProducer
from quorate.kernel.ids import Offset, ProducerId
from quorate.kernel.ports import Buffer
from quorate.records.batch import BatchHeader
from quorate.records.control import ControlType, control_type_of
from quorate.records.record import iterate_records

# How much is held back while a transaction's end is looked for; beyond it the same bytes are read a second time.
HELD_BYTES: Final = 8 * 1024 * 1024


class AbortedInAnswer:
    """The rule of Kafka's consumers: from its first offset to its abort marker a transaction's records do not count."""

    def __init__(self, aborted: Iterable[AbortedProducer]) -> None:
        self._waiting = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
        self._active: set[ProducerId] = set()

    def excludes(self, header: BatchHeader, batch: Buffer) -> bool:
        """Asked of every batch of the answer in order; control batches are never for readers."""
        while self._waiting and self._waiting[-1].first_offset <= header.last_offset:
            self._active.add(self._waiting.pop().producer_id)
        if header.is_control:
            if _marker_type(batch) is ControlType.ABORT:
                self._active.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._active


class BackupBatch(NamedTuple):
    base_offset: Offset
    header: BatchHeader | None  # None for message formats 0 and 1.
    data: Buffer


class _Marker(NamedTuple):
    offset: Offset
    is_commit: bool


class CommittedBatches:
    """The batches before ``end_offset`` that count for a read-committed reader, in order.

    ``batches`` go on behind the end, where markers of transactions may stand that began before it; ``batches_from``
    gives them anew from an offset on. A transaction that has no marker had not ended when the backup was made, and does
    not count. Nor does one where something is missing, at one of ``losses``, before the next marker.
    """

    def __init__(
        self,
        batches: Iterator[BackupBatch],
        batches_from: Callable[[Offset], Iterator[BackupBatch]],
        end_offset: Offset,
        *,
        losses: Sequence[Offset] = (),
        held_bytes: int = HELD_BYTES,
    ) -> None:
        self._batches = batches
        self._batches_from = batches_from
        self._end_offset = end_offset
        self._losses = sorted(losses)
        self._room_bytes = held_bytes
        self._held: deque[BackupBatch] = deque()
        self._ahead: Iterator[BackupBatch] | None = None
        self._markers: dict[ProducerId, list[_Marker]] = {}

    def __iter__(self) -> Iterator[BackupBatch]:
        while (batch := self._next()) is not None and batch.base_offset < self._end_offset:
            if batch.header is None or self._counts(batch.header):
                yield batch

    def _next(self) -> BackupBatch | None:
        if self._held:
            batch = self._held.popleft()
            self._room_bytes += len(batch.data)
            return batch
        return self._pull(self._batches)

    def _counts(self, header: BatchHeader) -> bool:
        if header.is_control:
            return False
        return not header.is_transactional or self._is_committed(header)

    def _is_committed(self, header: BatchHeader) -> bool:
        known = self._markers.setdefault(header.producer_id, [])
        while not known or known[-1].offset <= header.last_offset:
            if not self._look_further(header):
                return False
        marker = known[bisect_right(known, header.last_offset, key=lambda marker: marker.offset)]
        is_whole = bisect_right(self._losses, header.last_offset) == bisect_right(self._losses, marker.offset)
        return marker.is_commit and is_whole

    def _look_further(self, header: BatchHeader) -> bool:
        """One batch more; False where there is none."""
        if self._ahead is None and self._room_bytes > 0:
            batch = self._pull(self._batches)
            if batch is not None:
                self._held.append(batch)
                self._room_bytes -= len(batch.data)
            return batch is not None
        if self._ahead is None:
            self._ahead = self._batches_from(header.next_offset)
        return self._pull(self._ahead) is not None

    def _pull(self, batches: Iterator[BackupBatch]) -> BackupBatch | None:
        batch = next(batches, None)
        if batch is not None and batch.header is not None and batch.header.is_control:
            self._note(batch.header, batch.data)
        return batch

    def _note(self, header: BatchHeader, data: Buffer) -> None:
        kind = _marker_type(data)
        known = self._markers.setdefault(header.producer_id, [])
        is_new = not known or known[-1].offset < header.last_offset
        if is_new and kind in (ControlType.ABORT, ControlType.COMMIT):
            known.append(_Marker(header.last_offset, kind is ControlType.COMMIT))


def _marker_type(batch: Buffer) -> ControlType:
    record = next(iterate_records(batch), None)
    return ControlType.UNKNOWN if record is None else control_type_of(record)
