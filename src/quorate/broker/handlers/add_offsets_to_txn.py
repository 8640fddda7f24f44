"""AddOffsetsToTxn, versions 0 to 4: makes the offsets of a group part of a transaction."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.transactions.core.commands import AddPartitions, AddPartitionsResult
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, ProducerEpoch, ProducerId, TopicPartition, TransactionalId
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_PRODUCER_FENCED_FROM = 2


def handle(services: Services, context: RequestContext, request: AddOffsetsToTxnRequest) -> HandlerResult:
    if not request.transactional_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    if not request.group_id:
        return AddOffsetsToTxnResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    return _add(services, context, request)


async def _add(services: Services, context: RequestContext, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
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
    error_code = (await services.transactions.ask(command, AddPartitionsResult)).error
    if error_code is ErrorCode.PRODUCER_FENCED and context.api_version < _PRODUCER_FENCED_FROM:
        error_code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=error_code)


API = Api(request=AddOffsetsToTxnRequest, min_version=0, max_version=4, handle=handle)
