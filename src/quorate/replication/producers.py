"""What a replica remembers of producers beside what is in its log: who is deferred, and whose transaction is verified.

A producer has several batches in flight. Where one is refused because the disk is full, too few replicas are in sync or
this node does not know yet that it leads, the next ones are *deferred*: refused with the same error until the first was
sent again. They must not overtake it; and told that they are out of order, a client may take a new epoch, and send
again under it what is in flight to all other partitions, though it may be written there: librdkafka does.

A leader asks the coordinator before it begins a transaction in its log (*verification*, KIP-890). While it waits, the
transaction may end and its marker be written; records that came after it would stay open for ever. So every write that
waits holds a guard, which a marker takes away.
"""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader
from quorate.records.control import EPOCH_PER_TRANSACTION, TransactionEnd
from quorate.storage.producer_state import ProducerEntry, ProducerStates, comes_after

#: Errors of this node's moment, for which a producer sends the batch again.
_DEFERRING = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER})
#: Clients retry after a second at most. One that does not has given the batch up, and has to hear of the gap.
_RETRIES_WITHIN_MS = 10_000
_TIDY_FROM = 100


class EarlierRefusal(msgspec.Struct, frozen=True, kw_only=True):
    epoch: ProducerEpoch
    sequence: int
    code: ErrorCode
    message: str
    until_ms: int

    def is_before(self, header: BatchHeader) -> bool:
        """Whether the producer numbered the batch after the one that was refused."""
        return header.producer_epoch == self.epoch and comes_after(header.base_sequence, self.sequence)

    def is_written(self, entry: ProducerEntry | None) -> bool:
        """Whether the batch that was refused is in the log all the same: another leader has taken it."""
        if entry is None or entry.epoch != self.epoch or not entry.batches:
            return False
        return not comes_after(self.sequence, entry.last_sequence)


class DeferredProducers:
    """Of one partition, whether this node leads it or not: a batch that it refused may come again when it does."""

    __slots__ = ("_tidy_at", "refusals")

    def __init__(self) -> None:
        #: Nothing has to be asked where it is empty.
        self.refusals: dict[ProducerId, EarlierRefusal] = {}
        self._tidy_at = _TIDY_FROM

    def require_turn(self, header: BatchHeader, now_ms: int, written: ProducerStates) -> None:
        """Raises the error of an earlier batch of the producer that is still to be sent again."""
        refusal = self.refusals.get(header.producer_id)
        if refusal is None or not refusal.is_before(header) or now_ms >= refusal.until_ms:
            return
        if not refusal.is_written(written.get(header.producer_id)):
            raise KafkaError(refusal.code, refusal.message)

    def refused(self, header: BatchHeader, error: KafkaError, now_ms: int) -> None:
        if error.code not in _DEFERRING or header.producer_id < 0:
            return
        if len(self.refusals) >= self._tidy_at:
            self.drop_expired(now_ms)
        self.refusals[header.producer_id] = EarlierRefusal(
            epoch=header.producer_epoch,
            sequence=header.base_sequence,
            code=error.code,
            message=str(error),
            until_ms=now_ms + _RETRIES_WITHIN_MS,
        )

    def written(self, header: BatchHeader) -> None:
        self.refusals.pop(header.producer_id, None)

    def drop_expired(self, now_ms: int) -> None:
        """Forget producers that did not send their batch again."""
        self.refusals = {key: refusal for key, refusal in self.refusals.items() if now_ms < refusal.until_ms}
        self._tidy_at = max(_TIDY_FROM, 2 * len(self.refusals))


class VerificationGuard:
    """Compared by identity: the one that stands for a later transaction of the same producer is another."""

    __slots__ = ("epoch", "is_idle", "is_of_earlier_leadership", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, lowest_sequence: int) -> None:
        self.epoch = epoch
        # Of the batches that came: a later one must not be written before the first, whatever became of that.
        self.lowest_sequence = lowest_sequence
        self.is_idle = False  # Whether no batch has come since the last look for idle ones.
        self.is_of_earlier_leadership = False  # Whether others may have led since, and have written the end.

    @classmethod
    def of_earlier_leadership(cls, epoch: ProducerEpoch, lowest_sequence: int) -> "VerificationGuard":
        """For a batch whose turn came when this node did not lead any more."""
        guard = cls(epoch, lowest_sequence)
        guard.is_of_earlier_leadership = True
        return guard

    def ends_with(self, end: TransactionEnd) -> bool:
        """Whether the marker is of the transaction that this is for, or of a later one.

        From version 2 on a marker has the epoch that the producer goes on with, and the producer does not wait for it:
        a guard of that epoch is for its next transaction (KIP-890).
        """
        if end.transaction_version >= EPOCH_PER_TRANSACTION:
            return self.epoch < end.producer_epoch
        return self.epoch <= end.producer_epoch


class PendingVerifications:
    """The guards of one leadership, by producer."""

    __slots__ = ("_guards",)

    def __init__(self) -> None:
        self._guards: dict[ProducerId, VerificationGuard] = {}

    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int) -> VerificationGuard:
        """A batch came that would begin a transaction: what it needs to be written once that is confirmed."""
        guard = self._guards.get(producer_id)
        if guard is None or epoch > guard.epoch:
            guard = self._guards[producer_id] = VerificationGuard(epoch, sequence)
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            guard.is_idle = False
        return guard

    def require(self, producer_id: ProducerId, sequence: int, guard: VerificationGuard | None) -> None:
        """Raises INVALID_TXN_STATE unless the guard still holds; OUT_OF_ORDER_SEQUENCE_NUMBER if it came too early.

        After a change of leaders nobody knows whether it does: NOT_LEADER_OR_FOLLOWER, and the producer retries.
        """
        if guard is not None and guard.is_of_earlier_leadership:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader changed while the transaction was verified.")
        if guard is None or self._guards.get(producer_id) is not guard:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The record is not part of an ongoing transaction.")
        if sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} before {guard.lowest_sequence}, which came first",
            )

    def begun(self, producer_id: ProducerId) -> None:
        """From here on the log itself knows the transaction."""
        self._guards.pop(producer_id, None)

    def ended(self, end: TransactionEnd) -> None:
        """Its marker is in the log: what is still being verified for it comes too late."""
        guard = self._guards.get(end.producer_id)
        if guard is not None and guard.ends_with(end):
            del self._guards[end.producer_id]

    def drop_idle(self) -> None:
        """Forget those for which nothing came since the last call: their producers gave up long ago."""
        for producer_id, guard in list(self._guards.items()):
            if guard.is_idle:
                del self._guards[producer_id]
            guard.is_idle = True

    def end_leadership(self) -> None:
        """This node does not lead any more, or leads anew."""
        for guard in self._guards.values():
            guard.is_of_earlier_leadership = True
        self._guards.clear()
