"""OffsetDelete, version 0: forgets how far a group has read in topics that it does not read any more."""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.broker.request_parts import Parts
from quorate.coordination.groups.core.commands import DeleteOffsets, DeleteOffsetsResult
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(node: Node, context: RequestContext, request: OffsetDeleteRequest) -> HandlerResult:
    return _delete(node, request)


async def _delete(node: Node, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    image = node.metadata.image
    named = [
        TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index))
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = tuple(key for key in named if image.partition(key.topic, key.partition) is not None)
    command = DeleteOffsets(group_id=GroupId(request.group_id), topic_partitions=known)
    result = await node.groups.ask(command.group_id, command, DeleteOffsetsResult)
    if result.error is not ErrorCode.NONE:
        return OffsetDeleteResponse(error_code=result.error)
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=result.errors.get(
                            TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index)),
                            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                        ),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


API = Api(
    request=OffsetDeleteRequest,
    min_version=0,
    max_version=0,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
