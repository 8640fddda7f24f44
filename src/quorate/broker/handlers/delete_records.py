"""DeleteRecords, versions 0 to 2: moves the start of a log forward, up to the high watermark at most."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(services: Services, context: RequestContext, request: DeleteRecordsRequest) -> HandlerResult:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(services, TopicName(topic.name), wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(services: Services, topic: TopicName, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    try:
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = services.partitions.led(topic, PartitionIndex(wanted.partition_index))
        if not partition.log.config.deletes:
            raise KafkaError(ErrorCode.POLICY_VIOLATION)
        low_watermark = partition.delete_records_before(Offset(wanted.offset))
    except KafkaError as error:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error.code
        )
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=low_watermark)


API = Api(
    request=DeleteRecordsRequest,
    min_version=0,
    max_version=2,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
