"""What each request of a producer makes of its transactional id: the next transaction, or the error.

Nothing is changed here; the transaction that is returned counts once its record is committed.

InitProducerId makes a producer the holder of a transactional id: a new one, a successor, or the same one after an
error. AddPartitionsToTxn adds to a transaction; verification only looks at it. EndTxn prepares its end, and must tell a
repeat of itself from the next request. A producer of version 2 gets a new epoch with every transaction (KIP-890): a
delayed request names an epoch that is over, and can never end a later transaction. For producers of earlier versions
the state is all there is to judge by.

How each command is refused, and which results a producer acts on for good, is said here too.
"""

from typing import assert_never

import msgspec

from quorate.coordination.core.errors import RETRIABLE_FROM_COORDINATORS
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    Command,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTransaction,
    EndTransactionResult,
    InitProducer,
    InitProducerResult,
    ListTransactions,
    ListTransactionsResult,
    ProducerIdNeeded,
    Result,
    VerifyPartitions,
    VerifyPartitionsResult,
)
from quorate.coordination.transactions.core.transaction import (
    MAX_PRODUCER_EPOCH,
    NO_TIMESTAMP_MS,
    Transaction,
    TransactionState,
    fenced,
    is_epoch_exhausted,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId
from quorate.records.control import EPOCH_PER_TRANSACTION


def init_producer(
    current: Transaction | None, command: InitProducer, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode | ProducerIdNeeded:
    """The next state of the transactional id, or why there is none.

    If that is ``PREPARE_ABORT``, it ends what an earlier producer has begun, and the request has to be repeated.
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
    """Whether the producer that the request expects can be the one of this id. The epoch is checked later."""
    if command.expected_producer_id == current.producer_id:
        return True
    # It may not have got the answer that gave it a new producer id.
    is_previous = command.expected_producer_id == current.previous_producer_id
    return is_previous and is_epoch_exhausted(command.expected_producer_epoch)


def _holds(current: Transaction, command: InitProducer) -> bool:
    """Whether the request expects the current producer id and epoch, or nothing."""
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


def add_partitions(
    current: Transaction | None, command: AddPartitions, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode:
    """The transaction with the partitions, or the error; NONE where all of them are in it already."""
    error = _claim_error(current, command, is_pending=is_pending)
    if error is not ErrorCode.NONE:
        return error
    assert current is not None
    is_ongoing = current.state is TransactionState.ONGOING
    if is_ongoing and command.partitions <= current.partitions:
        return ErrorCode.NONE
    return msgspec.structs.replace(
        current,
        state=TransactionState.ONGOING,
        previous_producer_id=current.producer_id,
        partitions=current.partitions | command.partitions,
        start_ms=current.start_ms if is_ongoing else now_ms,
        last_update_ms=now_ms,
        client_version=command.client_version,
    )


def verify_partitions(
    current: Transaction | None, command: VerifyPartitions, *, is_pending: bool
) -> VerifyPartitionsResult:
    error = _claim_error(current, command, is_pending=is_pending)
    if error is not ErrorCode.NONE:
        return VerifyPartitionsResult(error=error)
    assert current is not None
    return VerifyPartitionsResult(missing=command.partitions - current.partitions)


def _claim_error(
    current: Transaction | None, command: AddPartitions | VerifyPartitions, *, is_pending: bool
) -> ErrorCode:
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    # First of all: the producer may have been told a producer id that counts only when this step is done.
    if is_pending or current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if command.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


_COMPLETE = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
_PREPARE = {True: TransactionState.PREPARE_COMMIT, False: TransactionState.PREPARE_ABORT}


def end_transaction(
    current: Transaction | None, command: EndTransaction, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode | ProducerIdNeeded:
    """The transaction as it is prepared to end, or the error; NONE where it has ended so already."""
    if current is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.client_version >= EPOCH_PER_TRANSACTION:
        return _end_with_epoch(current, command, is_pending=is_pending, now_ms=now_ms)
    return _end_by_state(current, command, is_pending=is_pending, now_ms=now_ms)


def _end_by_state(
    current: Transaction, command: EndTransaction, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode:
    if command.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if is_pending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if current.state is TransactionState.ONGOING:
        return _prepared(current, command, current.producer_epoch, now_ms)
    if current.state is _PREPARE[command.commits]:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE if current.state is _COMPLETE[command.commits] else ErrorCode.INVALID_TXN_STATE


def _end_with_epoch(
    current: Transaction, command: EndTransaction, *, is_pending: bool, now_ms: int
) -> Transaction | ErrorCode | ProducerIdNeeded:
    # First of all: the producer may have been told a producer id that counts only when this step is done.
    if is_pending or current.state.is_prepared:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if _is_repeat(current, command):
        return ErrorCode.NONE if current.state is _COMPLETE[command.commits] else ErrorCode.INVALID_TXN_STATE
    if command.producer_id != current.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if command.producer_epoch != current.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    if command.commits and current.state is not TransactionState.ONGOING:
        return ErrorCode.INVALID_TXN_STATE
    # To abort is allowed in any state: the producer cannot know whether its first records have arrived.
    epoch = ProducerEpoch(min(current.producer_epoch + 1, MAX_PRODUCER_EPOCH))
    if not current.is_epoch_exhausted:
        return _prepared(current, command, epoch, now_ms)
    if command.new_producer_id is None:
        return ProducerIdNeeded()
    return _prepared(current, command, epoch, now_ms, command.new_producer_id)


def _is_repeat(current: Transaction, command: EndTransaction) -> bool:
    """Whether the request was answered before: then it names the epoch before the one in that answer.

    So the last transaction has to be one of version 2, which gave its producer that epoch. After one of an earlier
    version it is the epoch of a successor, which must not be told to the producer that it has replaced. A producer of
    version 2 that the coordinator has fenced is two epochs behind, and the last epoch of all is nobody's.
    """
    if current.state not in _COMPLETE.values() or current.client_version < EPOCH_PER_TRANSACTION:
        return False
    if command.producer_id == current.producer_id:
        return command.producer_epoch + 1 == current.producer_epoch < MAX_PRODUCER_EPOCH
    has_wrapped = current.producer_epoch == 0 and command.producer_epoch == MAX_PRODUCER_EPOCH - 1
    return has_wrapped and command.producer_id == current.previous_producer_id


def _prepared(
    current: Transaction,
    command: EndTransaction,
    producer_epoch: ProducerEpoch,
    now_ms: int,
    next_producer_id: ProducerId = NO_PRODUCER_ID,
) -> Transaction:
    has_begun = current.state is TransactionState.ONGOING
    is_bumped = producer_epoch != current.producer_epoch
    return msgspec.structs.replace(
        current,
        state=_PREPARE[command.commits],
        producer_epoch=producer_epoch,
        previous_producer_id=current.producer_id,
        next_producer_id=next_producer_id,
        last_producer_epoch=current.producer_epoch if is_bumped else current.last_producer_epoch,
        start_ms=current.start_ms if has_begun else now_ms,
        last_update_ms=now_ms,
        client_version=command.client_version,
    )


_RETRIABLE = RETRIABLE_FROM_COORDINATORS | {ErrorCode.CONCURRENT_TRANSACTIONS}


def binds(result: Result) -> bool:
    """Whether a producer acts on the result for good. That a partition is part of its transaction changes nothing."""
    match result:
        case ProducerIdNeeded():
            return False
        case VerifyPartitionsResult(error=ErrorCode.NONE, missing=missing):
            return bool(missing)
        case _:
            return result.error not in _RETRIABLE


def refusal(command: Command, error: ErrorCode) -> Result:
    match command:
        case InitProducer():
            return InitProducerResult(error=error)
        case AddPartitions():
            return AddPartitionsResult(error=error)
        case VerifyPartitions():
            return VerifyPartitionsResult(error=error)
        case EndTransaction():
            return EndTransactionResult(error=error)
        case DescribeTransaction():
            return DescribeTransactionResult(error=error)
        case ListTransactions():
            return ListTransactionsResult(error=error)
        case _:
            assert_never(command)
