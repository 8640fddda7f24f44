"""How a producer comes to hold a transactional id: a new one, a successor, or the same one after an error."""

import msgspec

from quorate.coordination.transactions.core.commands import InitProducer, ProducerIdNeeded
from quorate.coordination.transactions.core.transaction import (
    NO_TIMESTAMP_MS,
    Transaction,
    TransactionState,
    fenced,
    is_epoch_exhausted,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch


def init_producer(
    current: Transaction | None, command: InitProducer, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode | ProducerIdNeeded:
    """The next state of the transactional id, or why there is none.

    One that is ``PREPARE_ABORT`` ends what an earlier producer has begun: the asker has to come again.
    """
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current is None:
        return _new(command, now_ms)
    if _expects(command) and not _may_hold(current, command):
        return ErrorCode.PRODUCER_FENCED
    if current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        # One that was replaced must not end what its successor has begun, as it may in Apache Kafka.
        return fenced(current, now_ms) if _holds(current, command) else ErrorCode.PRODUCER_FENCED
    if current.is_epoch_exhausted and _expected_epoch_is(command, current.producer_epoch):
        return _with_new_producer_id(current, command, now_ms)
    return _with_next_epoch(current, command, now_ms)


def _new(command: InitProducer, now_ms: int) -> Transaction | ProducerIdNeeded:
    if command.new_producer_id is None:
        return ProducerIdNeeded()
    return Transaction(
        producer_id=command.new_producer_id,
        producer_epoch=ProducerEpoch(0),
        timeout_ms=command.timeout_ms,
        last_update_ms=now_ms,
    )


def _expects(command: InitProducer) -> bool:
    return command.expected_producer_id != NO_PRODUCER_ID


def _expected_epoch_is(command: InitProducer, epoch: ProducerEpoch) -> bool:
    return not _expects(command) or command.expected_producer_epoch == epoch


def _may_hold(current: Transaction, command: InitProducer) -> bool:
    """Whether the producer that the asker was can be the one of this id. Its epoch is looked at later."""
    if command.expected_producer_id == current.producer_id:
        return True
    # It may not have got the answer that gave it a new producer id.
    is_previous = command.expected_producer_id == current.previous_producer_id
    return is_previous and is_epoch_exhausted(command.expected_producer_epoch)


def _holds(current: Transaction, command: InitProducer) -> bool:
    """Whether the asker has the producer id and epoch of now, or asks for whatever there is."""
    expected = command.expected_producer_id, command.expected_producer_epoch
    return not _expects(command) or expected == (current.producer_id, current.producer_epoch)


def _with_new_producer_id(current: Transaction, command: InitProducer, now_ms: int) -> Transaction | ProducerIdNeeded:
    if command.new_producer_id is None:
        return ProducerIdNeeded()
    return msgspec.structs.replace(
        _empty(current, command, now_ms),
        producer_id=command.new_producer_id,
        producer_epoch=ProducerEpoch(0),
        last_producer_epoch=current.producer_epoch if _expects(command) else NO_PRODUCER_EPOCH,
    )


def _with_next_epoch(current: Transaction, command: InitProducer, now_ms: int) -> Transaction | ErrorCode:
    empty = _empty(current, command, now_ms)
    bumped = ProducerEpoch(current.producer_epoch + 1)
    if not _expects(command):
        # A successor: nothing that its predecessor repeats may count any more.
        return msgspec.structs.replace(empty, producer_epoch=bumped, last_producer_epoch=NO_PRODUCER_EPOCH)
    if command.expected_producer_epoch == current.producer_epoch:
        return msgspec.structs.replace(empty, producer_epoch=bumped, last_producer_epoch=current.producer_epoch)
    if command.expected_producer_epoch == current.last_producer_epoch:
        return empty  # A repeat: the answer to the first attempt was lost.
    return ErrorCode.PRODUCER_FENCED


def _empty(current: Transaction, command: InitProducer, now_ms: int) -> Transaction:
    return msgspec.structs.replace(
        current,
        state=TransactionState.EMPTY,
        previous_producer_id=current.producer_id,
        timeout_ms=command.timeout_ms,
        partitions=frozenset(),
        start_ms=NO_TIMESTAMP_MS,
        last_update_ms=now_ms,
    )
