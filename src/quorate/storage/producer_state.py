"""What a log knows of each idempotent producer, and whether the next batch follows from it.

A producer numbers its records; the log keeps the last few batches of each, so that a retry is answered with the offset
of the first attempt and a gap is refused. ``check`` and ``advance`` belong to one append with nothing between them.
A transactional batch opens a transaction where none is open; the marker that ends it tells its coordinator's epoch too.
The rules are Apache Kafka 4's: a producer that is not known may start at any sequence (retention may have deleted its
records), so UNKNOWN_PRODUCER_ID is never raised, and an old epoch is INVALID_PRODUCER_EPOCH, which lets the client
recover, where older brokers said PRODUCER_FENCED. A new leader may ask for more than Apache Kafka does.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK, BatchHeader
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.storage.transactions import OpenTransactions, TransactionIndexEntry

BATCHES_PER_PRODUCER = 5  # What a client may have in flight (max.in.flight.requests.per.connection).
NO_SEQUENCE = -1
NO_COORDINATOR_EPOCH = -1
_EPOCH_BUMP_FROM = 2  # The transaction version in which every marker raises the producer's epoch (KIP-890).
_MAX_SEQUENCE = 2**31 - 1


def comes_after(sequence: int, earlier: int) -> bool:
    """In the order of a producer's numbers, which begin again at their end."""
    return 0 < (sequence - earlier) % (_MAX_SEQUENCE + 1) <= _MAX_SEQUENCE // 2


class SequencedBatch(msgspec.Struct, frozen=True, gc=False):
    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp_ms: int


class ProducerEntry:
    """One producer's epoch, its last batches in that epoch, oldest first, and the transaction it has open."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "idle_since_ms",
        "last_marker_offset",
        "last_timestamp_ms",
        "transaction_start",
    )

    def __init__(self, epoch: ProducerEpoch, last_timestamp_ms: int, batches: Sequence[SequencedBatch] = ()) -> None:
        self.epoch = epoch
        self.last_timestamp_ms = last_timestamp_ms
        self.idle_since_ms: int | None = None  # When it was first found not to have written; None once it has.
        self.batches = tuple(batches)
        self.coordinator_epoch = NO_COORDINATOR_EPOCH  # Of the last marker.
        self.transaction_start: Offset | None = None
        self.last_marker_offset: Offset | None = None  # Known only since the log was opened.

    @property
    def last_offset(self) -> Offset | None:
        """Of the batch that tells the last sequence or, where no batch does, of the marker that tells the epoch."""
        return self.batches[-1].last_offset if self.batches else self.last_marker_offset

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def ends_like(self, other: "ProducerEntry") -> bool:
        """Whether both know the same last batch; its timestamp may differ where compaction took its newest record."""
        return (self.epoch, self.last_sequence) == (other.epoch, other.last_sequence)

    def duplicate_of(self, header: BatchHeader) -> SequencedBatch | None:
        if header.producer_epoch != self.epoch:
            return None
        wanted = (header.base_sequence, header.last_sequence)
        return next((batch for batch in self.batches if (batch.base_sequence, batch.last_sequence) == wanted), None)


class ProducerStates:
    __slots__ = ("_entries", "open_transactions")

    def __init__(self) -> None:
        self._entries: dict[ProducerId, ProducerEntry] = {}
        self.open_transactions = OpenTransactions()

    def __iter__(self) -> Iterator[tuple[ProducerId, ProducerEntry]]:
        return iter(self._entries.items())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def has_open_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start is not None and entry.epoch == epoch

    def restore(self, producer_id: ProducerId, entry: ProducerEntry) -> None:
        self._entries[producer_id] = entry
        if entry.transaction_start is not None:
            self.open_transactions.begin(producer_id, entry.transaction_start)

    def check(self, headers: Iterable[BatchHeader]) -> SequencedBatch | None:
        """Judge the batches of one append by a client, in order; the original if they are a retry.

        Raises ``KafkaError`` where a batch does not follow. Changes nothing.
        """
        expected: dict[ProducerId, tuple[ProducerEpoch, int]] = {}
        for header in headers:
            producer_id = header.producer_id
            if producer_id < 0 or header.is_control:
                continue
            entry = self._entries.get(producer_id)
            if header.base_sequence < 0:  # From a coordinator: it writes for a producer, but does not number.
                if entry is not None:
                    _require_epoch(header, entry.epoch)
                continue
            if entry is not None and (duplicate := entry.duplicate_of(header)):
                return duplicate
            if producer_id in expected:
                epoch, last_sequence = expected[producer_id]
            elif entry is not None:
                epoch, last_sequence = entry.epoch, entry.last_sequence
            else:
                epoch, last_sequence = NO_PRODUCER_EPOCH, NO_SEQUENCE
            if epoch != NO_PRODUCER_EPOCH:
                _require_follows(header, epoch, last_sequence)
            if entry is not None and entry.transaction_start is not None and not header.is_transactional:
                raise KafkaError(
                    ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open in this partition"
                )
            expected[producer_id] = header.producer_epoch, header.last_sequence
        return None

    def check_marker(self, end: TransactionEnd) -> None:
        """Judge a marker that a coordinator wants to append. Raises ``KafkaError`` where it comes too late."""
        entry = self._entries.get(end.producer_id)
        if entry is None:
            return
        epoch = end.producer_epoch
        # From transaction version 2 on a marker has a new epoch, unless it is one that was written before and whose
        # answer was lost: then nothing is open.
        is_of_this_epoch = epoch == entry.epoch and entry.transaction_start is not None
        if epoch < entry.epoch or (end.transaction_version >= _EPOCH_BUMP_FROM and is_of_this_epoch):
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"a marker of epoch {epoch} for producer {end.producer_id}, of which {entry.epoch} was seen",
            )
        coordinator_epoch = end.marker.coordinator_epoch
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {coordinator_epoch}, after {entry.coordinator_epoch} was seen",
            )

    def advance(self, header: BatchHeader, base_offset: Offset, timestamp_ms: int) -> None:
        """Take in a batch that stands in the log at ``base_offset``. Replicated batches were judged by their leader."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(header.producer_epoch, timestamp_ms)
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches = ()
        entry.last_timestamp_ms = timestamp_ms
        entry.idle_since_ms = None
        if header.attributes & CONTROL_MASK:
            return  # ``end_transaction`` takes in what the marker says.
        if header.attributes & TRANSACTIONAL_MASK and entry.transaction_start is None:
            entry.transaction_start = base_offset
            self.open_transactions.begin(producer_id, base_offset)
        if header.base_sequence < 0:
            return
        last_offset = Offset(base_offset + header.last_offset_delta)
        batch = SequencedBatch(header.base_sequence, header.last_sequence, base_offset, last_offset, timestamp_ms)
        entry.batches = (*entry.batches[1 - BATCHES_PER_PRODUCER :], batch)

    def end_transaction(
        self, producer_id: ProducerId, marker: EndTransactionMarker, marker_offset: Offset
    ) -> TransactionIndexEntry | None:
        """After ``advance`` for a marker's batch: what to note in the transaction index, if anything was aborted."""
        entry = self._entries[producer_id]
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_marker_offset = marker_offset
        entry.transaction_start = None
        ended = self.open_transactions.end(producer_id, marker_offset)
        if ended is None or marker.is_commit:
            return None
        stable_offset = self.open_transactions.stable_after(ended)
        return TransactionIndexEntry(producer_id, ended.first_offset, marker_offset, stable_offset)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that have not written for so long, counted from the first look that found them idle.

        Not by the timestamps of their records, as Apache Kafka does: a producer that writes old data would be forgotten
        at once, and its retry stored twice. One with an open transaction stays: its marker is still to come.
        """
        for producer_id, entry in list(self._entries.items()):
            if entry.transaction_start is not None:
                continue
            if entry.idle_since_ms is None:
                entry.idle_since_ms = now_ms
            elif now_ms - entry.idle_since_ms >= expiration_ms:
                del self._entries[producer_id]


def _require_follows(header: BatchHeader, epoch: ProducerEpoch, last_sequence: int) -> None:
    sequence = header.base_sequence
    _require_epoch(header, epoch)
    if header.producer_epoch > epoch:
        if sequence != 0:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} starts epoch {header.producer_epoch} at sequence {sequence}, not 0",
            )
        return
    if sequence != last_sequence + 1 and not (sequence == 0 and last_sequence == _MAX_SEQUENCE):
        raise KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sends sequence {sequence} after {last_sequence}",
        )


def _require_epoch(header: BatchHeader, epoch: ProducerEpoch) -> None:
    if header.producer_epoch < epoch:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {header.producer_epoch}, but {epoch} was seen",
        )
