"""What becomes part of a transaction, and what is found to be in it."""

import msgspec

from quorate.coordination.transactions.core.commands import AddPartitions, VerifyPartitions, VerifyPartitionsResult
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode


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
