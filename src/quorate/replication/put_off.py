"""Batches that a replica refuses for a reason that passes, and those that their producers sent right behind them.

A producer has several batches under way. Where one is refused because the disk is full, too few replicas are in sync or
this node does not know yet that it leads, the next ones are refused with the same error until the first has come again.
They must not overtake it; and told that they are out of order, a client may take a new epoch, and send again under it
what is under way in all other partitions, though it may be written there: librdkafka does.
"""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader, read_header
from quorate.storage.producer_state import ProducerEntry, ProducerStates, comes_after

_PASSING = frozenset({ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_LEADER_OR_FOLLOWER})
#: Clients come again after a second at most. One that does not come has given the batch up, and has to hear of the gap.
_COMES_AGAIN_WITHIN_MS = 10_000
_TIDY_FROM = 100


class _Refusal(msgspec.Struct, frozen=True, kw_only=True):
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


class PutOff:
    """Of one partition, whether this node leads it or not."""

    def __init__(self) -> None:
        self._refusals: dict[ProducerId, _Refusal] = {}
        self._tidy_at = _TIDY_FROM

    def require_turn(self, batches: memoryview, now_ms: int, written: ProducerStates) -> None:
        """Raises the error of an earlier batch of the producer that is still to come again."""
        if not self._refusals:
            return
        header = read_header(batches)
        refusal = self._refusals.get(header.producer_id)
        if refusal is None or not refusal.is_before(header) or now_ms >= refusal.until_ms:
            return
        if not refusal.is_written(written.get(header.producer_id)):
            raise KafkaError(refusal.code, refusal.message)

    def refused(self, batches: memoryview, error: KafkaError, now_ms: int) -> None:
        if error.code not in _PASSING:
            return
        header = read_header(batches)
        if header.producer_id < 0:
            return
        if len(self._refusals) >= self._tidy_at:
            self._tidy(now_ms)
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

    def is_empty_at(self, now_ms: int) -> bool:
        self._tidy(now_ms)
        return not self._refusals

    def _tidy(self, now_ms: int) -> None:
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if now_ms < refusal.until_ms}
        self._tidy_at = max(_TIDY_FROM, 2 * len(self._refusals))
