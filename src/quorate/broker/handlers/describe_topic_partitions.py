"""DescribeTopicPartitions, version 0: topics in name order, in pages (KIP-966).

Gaps: authorized operations and eligible leader replicas are not reported.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_NODE, PartitionIndex, TopicName
from quorate.kernel.topic_names import INTERNAL_TOPICS
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

_LARGEST_PAGE = 2000


def handle(services: Services, context: RequestContext, request: DescribeTopicPartitionsRequest) -> HandlerResult:
    image = services.metadata.image
    names = sorted({topic.name for topic in request.topics} or image.topics)
    first_partition = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first_partition = request.cursor.partition_index
    room = max(1, min(request.response_partition_limit, _LARGEST_PAGE))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = image.topics.get(TopicName(name))
        if topic is None:
            described.append(_unknown(name))
            continue
        indexes = [index for index in sorted(topic.partitions) if index >= first_partition]
        first_partition = 0
        if room == 0:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[0] if indexes else 0)
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        described.append(_topic(image, topic, indexes[:room]))
        if len(indexes) > room:
            cursor = ResponseCursor(topic_name=name, partition_index=indexes[room])
            return DescribeTopicPartitionsResponse(topics=described, next_cursor=cursor)
        room -= len(indexes)
    return DescribeTopicPartitionsResponse(topics=described)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=name)


def _topic(image: MetadataImage, topic: Topic, indexes: list[PartitionIndex]) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(image, index, topic.partitions[index]) for index in indexes],
    )


def _partition(
    image: MetadataImage, index: PartitionIndex, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if state.leader == NO_NODE else ErrorCode.NONE,
        partition_index=index,
        leader_id=state.leader,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        # Empty, not null: the Java admin client fails on null.
        eligible_leader_replicas=(),
        last_known_elr=(),
        offline_replicas=image.offline_replicas(state),
    )


API = Api(request=DescribeTopicPartitionsRequest, min_version=0, max_version=0, handle=handle)
