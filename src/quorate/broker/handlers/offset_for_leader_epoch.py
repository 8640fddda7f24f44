"""OffsetForLeaderEpoch, versions 2 to 4: where the log of an epoch ends (KIP-101, KIP-279, KIP-320)."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import LeaderEpoch, PartitionIndex, TopicName
from quorate.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest) -> HandlerResult:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[_answer(services, TopicName(topic.topic), wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _answer(services: Services, topic: TopicName, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = services.partitions.led(topic, PartitionIndex(wanted.partition))
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except KafkaError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = partition.log.end_offset_for_epoch(LeaderEpoch(wanted.leader_epoch))
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


API = Api(
    request=OffsetForLeaderEpochRequest,
    min_version=2,
    max_version=4,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
