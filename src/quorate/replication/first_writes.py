"""The first write of a transaction to a partition: allowed only while its coordinator's word for it holds (KIP-890).

A leader asks the coordinator before it begins a transaction in its log. While it waits, the transaction may end and its
marker be written; records that came after it would stay open for ever. So every write that waits holds a permit, which
a marker takes away.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.control import EPOCH_PER_TRANSACTION, TransactionEnd


class Permit:
    """Compared by identity: the one that stands for a later transaction of the same producer is another."""

    __slots__ = ("epoch", "is_idle", "is_of_earlier_reign", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, lowest_sequence: int) -> None:
        self.epoch = epoch
        # Of the batches that came: a later one must not be written before the first, whatever became of that.
        self.lowest_sequence = lowest_sequence
        self.is_idle = False  # Whether no batch has come since the last look for idle ones.
        self.is_of_earlier_reign = False  # Whether others may have led since, and have written the end.

    def ends_with(self, end: TransactionEnd) -> bool:
        """Whether the marker is of the transaction that this is for, or of a later one.

        From version 2 on a marker has the epoch that the producer goes on with, and the producer does not wait for it:
        a permit of that epoch is for its next transaction (KIP-890).
        """
        if end.transaction_version >= EPOCH_PER_TRANSACTION:
            return self.epoch < end.producer_epoch
        return self.epoch <= end.producer_epoch


class FirstWrites:
    """The permits of one partition, by producer."""

    __slots__ = ("_permits",)

    def __init__(self) -> None:
        self._permits: dict[ProducerId, Permit] = {}

    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int) -> Permit:
        """A batch came that would begin a transaction: what it needs to be written once that is confirmed."""
        permit = self._permits.get(producer_id)
        if permit is None or epoch > permit.epoch:
            permit = self._permits[producer_id] = Permit(epoch, sequence)
        elif epoch == permit.epoch:
            permit.lowest_sequence = min(permit.lowest_sequence, sequence)
            permit.is_idle = False
        return permit

    def require(self, producer_id: ProducerId, sequence: int, permit: Permit | None) -> None:
        """Raises INVALID_TXN_STATE unless the permit still holds; OUT_OF_ORDER_SEQUENCE_NUMBER if it came too early.

        After a change of leaders nobody knows whether it does: NOT_LEADER_OR_FOLLOWER, and the producer tries again.
        """
        if permit is not None and permit.is_of_earlier_reign:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "The leader changed while the transaction was verified.")
        if permit is None or self._permits.get(producer_id) is not permit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The record is not part of an ongoing transaction.")
        if sequence > permit.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} before {permit.lowest_sequence}, which came first",
            )

    def begun(self, producer_id: ProducerId) -> None:
        """From here on the log itself knows the transaction."""
        self._permits.pop(producer_id, None)

    def ended(self, end: TransactionEnd) -> None:
        """Its marker is in the log: what is still being verified for it comes too late."""
        permit = self._permits.get(end.producer_id)
        if permit is not None and permit.ends_with(end):
            del self._permits[end.producer_id]

    def drop_idle(self) -> None:
        """Forget those for which nothing came since the last call: their producers gave up long ago."""
        for producer_id, permit in list(self._permits.items()):
            if permit.is_idle:
                del self._permits[producer_id]
            permit.is_idle = True

    def end_reign(self) -> None:
        """This node does not lead any more, or leads anew."""
        for permit in self._permits.values():
            permit.is_of_earlier_reign = True
        self._permits.clear()
