"""DescribeProducers, version 0: the producers that a partition knows, and where their open transactions begin."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(services: Services, context: RequestContext, request: DescribeProducersRequest) -> HandlerResult:
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


API = Api(
    request=DescribeProducersRequest,
    min_version=0,
    max_version=0,
    handle=handle,
    parts=(Parts(of=("topics", "partition_indexes"), into=("topics", "partitions"), per_part=10),),
)
