"""What tools are told about transactional ids: one of them, or all that pass their filters."""

from collections.abc import Mapping

from quorate.coordination.transactions.core.commands import (
    DescribeTransaction,
    DescribeTransactionResult,
    ListTransactions,
    ListTransactionsResult,
)
from quorate.coordination.transactions.core.transaction import Transaction
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TransactionalId

Transactions = Mapping[TransactionalId, Transaction]


def describe(transactions: Transactions, command: DescribeTransaction) -> DescribeTransactionResult:
    transaction = transactions.get(command.transactional_id)
    if transaction is None:
        return DescribeTransactionResult(error=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    return DescribeTransactionResult(transaction=transaction)


def listed(transactions: Transactions, command: ListTransactions, now_ms: int) -> ListTransactionsResult:
    return ListTransactionsResult(
        transactions=tuple(
            (transactional_id, transaction)
            for transactional_id, transaction in transactions.items()
            if _passes(command, transaction, now_ms)
        )
    )


def _passes(command: ListTransactions, transaction: Transaction, now_ms: int) -> bool:
    if command.states and transaction.state not in command.states:
        return False
    if command.producer_ids and transaction.producer_id not in command.producer_ids:
        return False
    return command.min_duration_ms < 0 or (
        transaction.is_under_way and now_ms - transaction.start_ms > command.min_duration_ms
    )
