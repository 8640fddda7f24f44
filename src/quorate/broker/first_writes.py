"""The first write of a transaction to a partition: allowed only while its coordinator's word for it holds (KIP-890).

A leader asks the coordinator before it begins a transaction in its log. While it waits, the transaction may end and its
marker be written; records that came after it would stay open for ever. So every write that waits holds a permit, which
a marker takes away. Pure.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId


class Permit:
    """Compared by identity: the one that stands for a later transaction of the same producer is another."""

    __slots__ = ("epoch", "is_idle", "lowest_sequence")

    def __init__(self, epoch: ProducerEpoch, lowest_sequence: int) -> None:
        self.epoch = epoch
        # Of the batches that came: a later one must not be written before the first, whatever became of that.
        self.lowest_sequence = lowest_sequence
        self.is_idle = False  # Whether no batch has come since the last look for idle ones.

    def lower_to(self, epoch: ProducerEpoch, sequence: int) -> None:
        if epoch > self.epoch:
            self.epoch, self.lowest_sequence = epoch, sequence
        elif epoch == self.epoch:
            self.lowest_sequence = min(self.lowest_sequence, sequence)


class FirstWrites:
    """The permits of one partition, by producer."""

    __slots__ = ("_permits",)

    def __init__(self) -> None:
        self._permits: dict[ProducerId, Permit] = {}

    def begin(self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int) -> Permit:
        """A batch came that would begin a transaction: what it needs to be written once that is confirmed."""
        permit = self._permits.get(producer_id)
        if permit is None:
            permit = self._permits[producer_id] = Permit(epoch, sequence)
        else:
            permit.lower_to(epoch, sequence)
            permit.is_idle = False
        return permit

    def require(self, producer_id: ProducerId, sequence: int, permit: Permit | None) -> None:
        """Raises INVALID_TXN_STATE unless the permit still holds; OUT_OF_ORDER_SEQUENCE_NUMBER if it came too early."""
        if permit is None or self._permits.get(producer_id) is not permit:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE, "The record is not part of an ongoing transaction.")
        if sequence > permit.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"sequence {sequence} before {permit.lowest_sequence}, which came first",
            )

    def forget(self, producer_id: ProducerId) -> None:
        """The transaction has begun, or has ended."""
        self._permits.pop(producer_id, None)

    def drop_idle(self) -> None:
        """Forget those for which nothing came since the last call: their producers gave up long ago."""
        for producer_id, permit in list(self._permits.items()):
            if permit.is_idle:
                del self._permits[producer_id]
            permit.is_idle = True

    def clear(self) -> None:
        self._permits.clear()
