"""The way through a transaction, of its producer and of its coordinator.

- InitProducerId, versions 0 to 5: an id and an epoch for a producer, idempotent or with a transactional id.
- AddPartitionsToTxn, versions 0 to 5: makes partitions part of a transaction, or (from 4 on) asks whether they are.
  Versions up to 3 are for producers; the later ones carry the questions of partition leaders, for many transactions at
  once (KIP-890).
- AddOffsetsToTxn, versions 0 to 4: makes the offsets of a group part of a transaction.
- EndTxn, versions 0 to 5: commits or aborts. From 5 on the answer holds what the producer goes on with (KIP-890).
- WriteTxnMarkers, versions 1 and 2: a coordinator ends transactions in the partitions that this node leads. Answered
  when the high watermark has passed the markers, so that no later leader can be without them. In a partition of
  ``__consumer_offsets`` the marker also decides about the offsets that were committed in the transaction.
"""

import asyncio
from collections.abc import Mapping, Sequence

from quorate.broker.api import Api
from quorate.broker.produce.pending import PendingProduce, UncommittedWrite
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.transactions.core.commands import (
    AddPartitions,
    AddPartitionsResult,
    EndTransaction,
    EndTransactionResult,
    InitProducer,
    InitProducerResult,
    VerifyPartitions,
    VerifyPartitionsResult,
)
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    GroupId,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    TopicName,
    TopicPartition,
    TransactionalId,
)
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from quorate.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from quorate.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from quorate.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from quorate.records.control import EPOCH_PER_TRANSACTION, EndTransactionMarker, TransactionEnd

#: Before these, producers know a successor by the older error (KIP-588).
_INIT_FENCED_FROM = 4
_PRODUCER_FENCED_FROM = 2
_BATCHED_FROM = 4
_ABORTABLE_FROM = 5
_EPOCH_PER_TRANSACTION_FROM = 5
_MARKERS_TIMEOUT_MS = 30_000
_OF_COORDINATORS = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)

Errors = Mapping[TopicPartition, ErrorCode]


async def init_producer_id(
    services: Services, context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is None:
        return await _take_id(services)
    if not request.transactional_id or _is_half_expected(request):
        return _refused(ErrorCode.INVALID_REQUEST)
    return await _init_transactional(services, context, request, TransactionalId(request.transactional_id))


def _is_half_expected(request: InitProducerIdRequest) -> bool:
    return (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)


async def _take_id(services: Services) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


async def _init_transactional(
    services: Services, context: RequestContext, request: InitProducerIdRequest, transactional_id: TransactionalId
) -> InitProducerIdResponse:
    command = InitProducer(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        expected_producer_id=ProducerId(request.producer_id),
        expected_producer_epoch=ProducerEpoch(request.producer_epoch),
    )
    result = await services.transactions.ask(command, InitProducerResult)
    return InitProducerIdResponse(
        error_code=_as_of_version(result.error, context, _INIT_FENCED_FROM),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


async def add_partitions_to_txn(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if context.api_version < _BATCHED_FROM:
        return await _add_to_one(services, context, request)
    answers = await asyncio.gather(*(_answer(services, context, transaction) for transaction in request.transactions))
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id, topic_results=_topic_results(transaction.topics, errors)
        )
        for transaction, errors in zip(request.transactions, answers, strict=True)
    ]
    return AddPartitionsToTxnResponse(results_by_transaction=results)


async def _add_to_one(
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
    return await _add_partitions(services, context, transaction, partitions)


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


async def _add_partitions(
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
    result = await services.transactions.ask(command, AddPartitionsResult)
    return dict.fromkeys(partitions, _as_of_version(result.error, context, _PRODUCER_FENCED_FROM))


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


async def add_offsets_to_txn(
    services: Services, context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    group_id = GroupId(request.group_id)
    try:
        await services.groups.find(group_id)  # Makes the offsets topic where it is missing.
    except KafkaError as error:
        return AddOffsetsToTxnResponse(error_code=error.code)
    index = partition_for(group_id, len(services.metadata.image.topics[CONSUMER_OFFSETS].partitions))
    command = AddPartitions(
        transactional_id=TransactionalId(request.transactional_id),
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        partitions=frozenset({TopicPartition(CONSUMER_OFFSETS, index)}),
        client_version=0,
    )
    result = await services.transactions.ask(command, AddPartitionsResult)
    return AddOffsetsToTxnResponse(error_code=_as_of_version(result.error, context, _PRODUCER_FENCED_FROM))


async def end_txn(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    command = EndTransaction(
        transactional_id=TransactionalId(request.transactional_id),
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        commits=request.committed,
        client_version=EPOCH_PER_TRANSACTION if context.api_version >= _EPOCH_PER_TRANSACTION_FROM else 0,
    )
    result = await services.transactions.ask(command, EndTransactionResult)
    return EndTxnResponse(
        error_code=_as_of_version(result.error, context, _PRODUCER_FENCED_FROM),
        producer_id=result.producer_id,
        producer_epoch=result.producer_epoch,
    )


def _as_of_version(error: ErrorCode, context: RequestContext, fenced_from: int) -> ErrorCode:
    is_too_new = error is ErrorCode.PRODUCER_FENCED and context.api_version < fenced_from
    return ErrorCode.INVALID_PRODUCER_EPOCH if is_too_new else error


async def write_txn_markers(
    services: Services, context: RequestContext, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse:
    results = await asyncio.gather(*(_end_transaction(services, marker) for marker in request.markers))
    return WriteTxnMarkersResponse(markers=results)


async def _end_transaction(services: Services, marker: WritableTxnMarker) -> WritableTxnMarkerResult:
    end = _end_of(marker)
    partitions = [(topic.name, index) for topic in marker.topics for index in topic.partition_indexes]
    codes, group_codes = await asyncio.gather(
        _append_markers(services, end, partitions), _end_in_groups(services, end, partitions)
    )
    codes |= group_codes
    return WritableTxnMarkerResult(
        producer_id=marker.producer_id,
        topics=[
            WritableTxnMarkerTopicResult(
                name=topic.name,
                partitions=[
                    WritableTxnMarkerPartitionResult(partition_index=index, error_code=codes[topic.name, index])
                    for index in topic.partition_indexes
                ],
            )
            for topic in marker.topics
        ],
    )


def _end_of(marker: WritableTxnMarker) -> TransactionEnd:
    return TransactionEnd(
        producer_id=ProducerId(marker.producer_id),
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        marker=EndTransactionMarker(is_commit=marker.transaction_result, coordinator_epoch=marker.coordinator_epoch),
        transaction_version=marker.transaction_version,
    )


async def _append_markers(
    services: Services, end: TransactionEnd, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    codes = dict.fromkeys(partitions, ErrorCode.NONE)
    uncommitted: list[UncommittedWrite] = []
    now_ms = services.clock.now_ms()
    for position, (topic, index) in enumerate(partitions):
        if topic == CONSUMER_OFFSETS:
            continue
        try:
            partition = services.partitions.led(TopicName(topic), PartitionIndex(index))
            if partition.settings.is_being_restored:
                continue  # Nothing of the transaction was taken there, and a marker would take an offset away.
            info = partition.append_marker(end, now_ms)
        except KafkaError as error:
            codes[topic, index] = error.code
            continue
        uncommitted.append((position, partition, Offset(info.last_offset + 1)))
    if uncommitted:
        failures = await PendingProduce(services.loop, _MARKERS_TIMEOUT_MS, uncommitted, dict).future
        codes |= {partitions[position]: failure.code for position, failure in failures.items()}
    return codes


async def _end_in_groups(
    services: Services, end: TransactionEnd, partitions: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], ErrorCode]:
    codes = {}
    for topic, index in partitions:
        if topic == CONSUMER_OFFSETS:
            code = await services.groups.end_transaction(PartitionIndex(index), end)
            # The sender knows the errors of partitions only; after this one it looks for the leader and tries again.
            codes[topic, index] = ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _OF_COORDINATORS else code
    return codes


INIT_PRODUCER_ID = Api(request=InitProducerIdRequest, min_version=0, max_version=5, handle=init_producer_id)
ADD_PARTITIONS_TO_TXN = Api(
    request=AddPartitionsToTxnRequest, min_version=0, max_version=5, handle=add_partitions_to_txn, max_elements=10_000
)
ADD_OFFSETS_TO_TXN = Api(request=AddOffsetsToTxnRequest, min_version=0, max_version=4, handle=add_offsets_to_txn)
END_TXN = Api(request=EndTxnRequest, min_version=0, max_version=5, handle=end_txn)
WRITE_TXN_MARKERS = Api(
    request=WriteTxnMarkersRequest,
    min_version=1,
    max_version=2,
    handle=write_txn_markers,
    parts=(Parts(of=("markers", "topics", "partition_indexes"), into=("markers", "topics", "partitions")),),
)
