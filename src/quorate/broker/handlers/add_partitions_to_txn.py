"""AddPartitionsToTxn, versions 0 to 5: makes partitions part of a transaction, or (from 4 on) asks whether they are.

Versions up to 3 are for producers; the later ones carry the questions of partition leaders, for many transactions at
once (KIP-890).
"""

import asyncio
from collections.abc import Mapping, Sequence

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    VerifyPartitions,
    VerifyPartitionsResult,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from quorate.records.control import EPOCH_PER_TRANSACTION

_PRODUCER_FENCED_FROM = 2
_BATCHED_FROM = 4
_ABORTABLE_FROM = 5

Errors = Mapping[TopicPartition, ErrorCode]


def handle(services: Services, context: RequestContext, request: AddPartitionsToTxnRequest) -> HandlerResult:
    if context.api_version >= _BATCHED_FROM:
        return _handle_batch(services, context, request)
    return _handle_one(services, context, request)


async def _handle_batch(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    answers = await asyncio.gather(*(_answer(services, context, transaction) for transaction in request.transactions))
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction.topics, errors)
        )
        for transaction, errors in zip(request.transactions, answers, strict=True)
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _handle_one(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    errors = await _answer(services, context, transaction)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_topic_results(transaction.topics, errors))


async def _answer(services: Services, context: RequestContext, transaction: AddPartitionsToTxnTransaction) -> Errors:
    partitions = frozenset(_partitions(transaction.topics))
    if not transaction.transactional_id:
        return dict.fromkeys(partitions, ErrorCode.INVALID_REQUEST)
    if transaction.verify_only:
        return await _verify(services, context, transaction, partitions)
    return await _add(services, context, transaction, partitions)


async def _verify(
    services: Services,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    partitions: frozenset[TopicPartition],
) -> Errors:
    command = VerifyPartitions(
        transactional_id=TransactionalId(transaction.transactional_id),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=ProducerEpoch(transaction.producer_epoch),
        partitions=partitions,
    )
    result = await services.transactions.ask(command, VerifyPartitionsResult)
    if result.error is not ErrorCode.NONE:
        return dict.fromkeys(partitions, result.error)
    missing = ErrorCode.TRANSACTION_ABORTABLE if context.api_version >= _ABORTABLE_FROM else ErrorCode.INVALID_TXN_STATE
    return {partition: missing if partition in result.missing else ErrorCode.NONE for partition in partitions}


async def _add(
    services: Services,
    context: RequestContext,
    transaction: AddPartitionsToTxnTransaction,
    partitions: frozenset[TopicPartition],
) -> Errors:
    image = services.metadata.image
    unknown = {partition for partition in partitions if image.partition(*partition) is None}
    if unknown:
        # All or nothing: those that could be added are not.
        return {
            partition: (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in unknown else ErrorCode.OPERATION_NOT_ATTEMPTED
            )
            for partition in partitions
        }
    command = AddPartitions(
        transactional_id=TransactionalId(transaction.transactional_id),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=ProducerEpoch(transaction.producer_epoch),
        partitions=partitions,
        client_version=EPOCH_PER_TRANSACTION if context.api_version >= _BATCHED_FROM else 0,
    )
    error = (await services.transactions.ask(command, AddPartitionsResult)).error
    if error is ErrorCode.PRODUCER_FENCED and context.api_version < _PRODUCER_FENCED_FROM:
        error = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, error)


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [
        TopicPartition(TopicName(topic.name), PartitionIndex(index)) for topic in topics for index in topic.partitions
    ]


def _topic_results(topics: Sequence[AddPartitionsToTxnTopic], errors: Errors) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(
                    partition_index=index,
                    partition_error_code=errors[TopicPartition(TopicName(topic.name), PartitionIndex(index))],
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


API = Api(request=AddPartitionsToTxnRequest, min_version=0, max_version=5, handle=handle, max_elements=10_000)
