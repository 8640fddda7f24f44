"""OffsetDelete, version 0: forgets how far a group has read in topics that it does not read any more."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import DeleteOffsets, DeleteOffsetsResult
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(services: Services, context: RequestContext, request: OffsetDeleteRequest) -> HandlerResult:
    return _delete(services, request)


async def _delete(services: Services, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    image = services.metadata.image
    named = [
        TopicPartition(TopicName(topic.name), PartitionIndex(partition.partition_index))
        for topic in request.topics
        for partition in topic.partitions
    ]
    known = tuple(key for key in named if image.partition(key.topic, key.partition) is not None)
    command = DeleteOffsets(group_id=GroupId(request.group_id), topic_partitions=known)
    result = await services.groups.ask(command.group_id, command, DeleteOffsetsResult)
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
