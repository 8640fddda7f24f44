"""How each command is told no, and which errors of an append a producer understands."""

from typing import assert_never

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

#: Who is told so asks again, here or of another node.
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)


def binds(result: Result) -> bool:
    """Whether a producer acts on the result for good. That a partition is part of its transaction changes nothing."""
    match result:
        case ProducerIdNeeded():
            return False
        case VerifyPartitionsResult(error=ErrorCode.NONE, missing=missing):
            return bool(missing)
        case _:
            return result.error not in _PASSING


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


def coordinator_error(append_error: ErrorCode) -> ErrorCode:
    """What a failed append means to a producer: wait, or look for the coordinator again."""
    match append_error:
        case (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            | ErrorCode.NOT_ENOUGH_REPLICAS
            | ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            | ErrorCode.REQUEST_TIMED_OUT
        ):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        case ErrorCode.NOT_LEADER_OR_FOLLOWER | ErrorCode.KAFKA_STORAGE_ERROR:
            return ErrorCode.NOT_COORDINATOR
        case ErrorCode.MESSAGE_TOO_LARGE | ErrorCode.RECORD_LIST_TOO_LARGE:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        case _:
            return append_error
