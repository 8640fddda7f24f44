"""What handlers ask of the coordinator, and what it is answered."""

import msgspec

from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    ProducerEpoch,
    ProducerId,
    TopicPartition,
    TransactionalId,
)


class InitProducer(msgspec.Struct, frozen=True, kw_only=True):
    """A producer takes over the transactional id. Whatever an earlier one has begun is aborted first."""

    transactional_id: TransactionalId
    timeout_ms: int
    #: What the producer had so far, where it goes on after an error (KIP-360).
    expected_producer_id: ProducerId = NO_PRODUCER_ID
    expected_producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH
    #: A fresh id, once the coordinator has said that it needs one.
    new_producer_id: ProducerId | None = None


class InitProducerResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class AddPartitions(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]
    client_version: int


class AddPartitionsResult(msgspec.Struct, frozen=True, kw_only=True):
    """One error for all: partitions are added together or not at all."""

    error: ErrorCode = ErrorCode.NONE


class VerifyPartitions(msgspec.Struct, frozen=True, kw_only=True):
    """Are these in the producer's ongoing transaction? Nothing is added."""

    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    partitions: frozenset[TopicPartition]


class VerifyPartitionsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    missing: frozenset[TopicPartition] = frozenset()


class EndTransaction(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: TransactionalId
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    commits: bool
    client_version: int
    #: A fresh id, once the coordinator has said that it needs one.
    new_producer_id: ProducerId | None = None


class EndTransactionResult(msgspec.Struct, frozen=True, kw_only=True):
    """With what the producer uses for its next transaction."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH


class DescribeTransaction(msgspec.Struct, frozen=True, kw_only=True):
    transactional_id: TransactionalId


class DescribeTransactionResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    transaction: Transaction | None = None


class ListTransactions(msgspec.Struct, frozen=True, kw_only=True):
    """Empty filters let everything pass. ``min_duration_ms`` is of transactions that are under way; -1 asks for all."""

    states: frozenset[TransactionState] = frozenset()
    producer_ids: frozenset[ProducerId] = frozenset()
    min_duration_ms: int = -1


class ListTransactionsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    transactions: tuple[tuple[TransactionalId, Transaction], ...] = ()


class ProducerIdNeeded(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing was done: ask again with a new producer id."""


#: Those that are about one transactional id.
IdCommand = InitProducer | AddPartitions | VerifyPartitions | EndTransaction | DescribeTransaction
Command = IdCommand | ListTransactions
Result = (
    InitProducerResult
    | AddPartitionsResult
    | VerifyPartitionsResult
    | EndTransactionResult
    | DescribeTransactionResult
    | ListTransactionsResult
    | ProducerIdNeeded
)
