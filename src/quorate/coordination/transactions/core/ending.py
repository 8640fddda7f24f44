"""How a producer's request ends its transaction, and how a repeat of such a request is told from the next one.

A producer of version 2 gets a new epoch with every transaction (KIP-890). So a request that was delayed names an epoch
that is over, and can never end the transaction after the one that it was meant for. For producers of earlier versions
the state is all there is to judge by.
"""

import msgspec

from quorate.coordination.transactions.core.commands import EndTransaction, ProducerIdNeeded
from quorate.coordination.transactions.core.transaction import MAX_PRODUCER_EPOCH, Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_ID, ProducerEpoch, ProducerId
from quorate.records.control import EPOCH_PER_TRANSACTION

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
    """Whether the epoch that the request names is the one before the epoch that it was answered with.

    One that was fenced is two epochs behind, and the last epoch of all is never an answer.
    """
    if current.state not in _COMPLETE.values():
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
