"""Batches that a leader refuses for a reason that passes, and those that their producers sent right behind them.

A producer has several batches under way. Where one is refused because the disk is full or too few replicas are in sync,
the next ones are refused with the same error until the first has come again. They must not overtake it; and told that
they are out of order, a client may take a new epoch, and send again under it what is under way in all other partitions,
though it may be written there: librdkafka does. Pure.
"""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader, read_header

_PASSING = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS})
#: Clients come again after a second at most. One that does not come has given the batch up, and has to hear of the gap.
_COMES_AGAIN_WITHIN_MS = 10_000
_SEQUENCES = 2**31


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
    epoch: ProducerEpoch
    sequence: int
    code: ErrorCode
    message: str
    until_ms: int

    def is_before(self, header: BatchHeader) -> bool:
        """Whether the producer numbered the batch after the one that was refused; numbers begin again at their end."""
        distance = (header.base_sequence - self.sequence) % _SEQUENCES
        return header.producer_epoch == self.epoch and 0 < distance < _SEQUENCES // 2


class PutOff:
    """Of one partition, while this node leads it."""

    def __init__(self) -> None:
        self._refusals: dict[ProducerId, _Refusal] = {}

    def require_turn(self, batches: memoryview, now_ms: int) -> None:
        """Raises the error of an earlier batch of the producer that is still to come again."""
        if self._refusals:
            header = read_header(batches)
            refusal = self._refusals.get(header.producer_id)
            if refusal is not None and refusal.is_before(header) and now_ms < refusal.until_ms:
                raise KafkaError(refusal.code, refusal.message)

    def refused(self, batches: memoryview, error: KafkaError, now_ms: int) -> None:
        if error.code not in _PASSING:
            return
        header = read_header(batches)
        if header.producer_id < 0:
            return
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if now_ms < refusal.until_ms}
        self._refusals[header.producer_id] = _Refusal(
            epoch=header.producer_epoch,
            sequence=header.base_sequence,
            code=error.code,
            message=str(error),
            until_ms=now_ms + _COMES_AGAIN_WITHIN_MS,
        )

    def written(self, batches: memoryview) -> None:
        if self._refusals:
            self._refusals.pop(read_header(batches).producer_id, None)

    def clear(self) -> None:
        self._refusals.clear()
