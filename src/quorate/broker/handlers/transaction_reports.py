"""What is known of transactions and of the producers behind them.

- ListTransactions, versions 0 to 2: the transactional ids that this node coordinates, by state, producer and age.
- DescribeTransactions, version 0: how far the transactions have come that this node coordinates.
- DescribeProducers, version 0: the producers that a partition knows, and where their open transactions begin.
"""

import asyncio
from collections import defaultdict

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import (
    DescribeTransaction,
    DescribeTransactionResult,
    ListTransactions,
)
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import PartitionIndex, ProducerId, TopicName, TransactionalId
from quorate.kernel.pattern import InvalidPattern, compile_pattern
from quorate.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from quorate.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
)
from quorate.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from quorate.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from quorate.protocol.messages.list_transactions import TransactionState as ListedTransaction
from quorate.security.api_rules import LISTED_TRANSACTIONS, TOPICS_OF_DESCRIBED_TRANSACTIONS

Transactions = tuple[tuple[TransactionalId, Transaction], ...]
_STATES = {state.kafka_name: state for state in TransactionState}


async def list_transactions(
    services: Services, context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in _STATES]
    if unknown and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown)
    command = ListTransactions(
        states=frozenset(_STATES[name] for name in request.state_filters if name in _STATES),
        producer_ids=frozenset(ProducerId(producer_id) for producer_id in request.producer_id_filters),
        min_duration_ms=request.duration_filter,
    )
    result = await services.transactions.list_transactions(command)
    transactions = result.transactions
    if request.transactional_id_pattern:
        try:
            transactions = await services.loop.run_in_executor(
                services.executor, _matching, request.transactional_id_pattern, transactions
            )
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    visible = context.access.allowed(LISTED_TRANSACTIONS, (transactional_id for transactional_id, _ in transactions))
    return ListTransactionsResponse(
        error_code=result.error,
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.kafka_name,
            )
            for transactional_id, transaction in transactions
            if transactional_id in visible
        ],
    )


def _matching(pattern: str, transactions: Transactions) -> Transactions:
    """Runs in a worker thread: however cheap one match is, there may be many transactional ids."""
    compiled = compile_pattern(pattern)
    return tuple(each for each in transactions if compiled.matches(each[0]))


async def describe_transactions(
    services: Services, context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    names = request.transactional_ids
    return DescribeTransactionsResponse(
        transaction_states=await asyncio.gather(
            *(_describe_one(services, context, TransactionalId(name)) for name in names)
        )
    )


async def _describe_one(
    services: Services, context: RequestContext, transactional_id: TransactionalId
) -> DescribedTransaction:
    if not transactional_id:
        return DescribedTransaction(error_code=ErrorCode.INVALID_REQUEST)
    command = DescribeTransaction(transactional_id=transactional_id)
    result = await services.transactions.ask(command, DescribeTransactionResult)
    transaction = result.transaction
    if transaction is None:
        return DescribedTransaction(error_code=result.error, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(context, transaction),
    )


def _topics(context: RequestContext, transaction: Transaction) -> list[TopicData]:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        indexes[topic].append(partition)
    visible = context.access.allowed(TOPICS_OF_DESCRIBED_TRANSACTIONS, indexes)
    return [TopicData(topic=topic, partitions=partitions) for topic, partitions in indexes.items() if topic in visible]


def describe_producers(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(services, TopicName(topic.name), index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(services: Services, topic: TopicName, index: int) -> PartitionResponse:
    try:
        producers = services.partitions.led(topic, PartitionIndex(index)).log.producers
    except KafkaError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=-1 if entry.transaction_start is None else entry.transaction_start,
            )
            for producer_id, entry in producers
        ],
    )


LIST_TRANSACTIONS = Api(request=ListTransactionsRequest, min_version=0, max_version=2, handle=list_transactions)
DESCRIBE_TRANSACTIONS = Api(
    request=DescribeTransactionsRequest,
    min_version=0,
    max_version=0,
    handle=describe_transactions,
    parts=(Parts(of=("transactional_ids",), into=("transaction_states",), distinct_by=(), per_part=20),),
)
DESCRIBE_PRODUCERS = Api(
    request=DescribeProducersRequest,
    min_version=0,
    max_version=0,
    handle=describe_producers,
    parts=(Parts(of=("topics", "partition_indexes"), into=("topics", "partitions"), per_part=10),),
)
