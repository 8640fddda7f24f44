"""How each command is refused, and which results a producer acts on for good."""

from typing import assert_never

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
from quorate.kernel.errors import ErrorCode

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
