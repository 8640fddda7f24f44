"""DescribeTransactions, version 0: how far the transactions have come that this node coordinates."""

import asyncio
from collections import defaultdict

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import DescribeTransaction, DescribeTransactionResult
from quorate.coordination.transactions.core.transaction import Transaction
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TransactionalId
from quorate.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)


def handle(services: Services, context: RequestContext, request: DescribeTransactionsRequest) -> HandlerResult:
    return _describe(services, request)


async def _describe(services: Services, request: DescribeTransactionsRequest) -> DescribeTransactionsResponse:
    names = request.transactional_ids
    return DescribeTransactionsResponse(
        transaction_states=await asyncio.gather(*(_describe_one(services, TransactionalId(name)) for name in names))
    )


async def _describe_one(services: Services, transactional_id: TransactionalId) -> TransactionState:
    if not transactional_id:
        return TransactionState(error_code=ErrorCode.INVALID_REQUEST)
    command = DescribeTransaction(transactional_id=transactional_id)
    result = await services.transactions.ask(command, DescribeTransactionResult)
    transaction = result.transaction
    if transaction is None:
        return TransactionState(error_code=result.error, transactional_id=transactional_id)
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=transaction.state.kafka_name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=_topics(transaction),
    )


def _topics(transaction: Transaction) -> list[TopicData]:
    indexes: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(transaction.partitions):
        indexes[topic].append(partition)
    return [TopicData(topic=topic, partitions=partitions) for topic, partitions in indexes.items()]


API = Api(
    request=DescribeTransactionsRequest,
    min_version=0,
    max_version=0,
    handle=handle,
    parts=(Parts(of=("transactional_ids",), into=("transaction_states",), distinct_by=(), per_part=20),),
)
