"""OffsetCommit, versions 2 to 10: stores how far a group has read. Answered when the offsets are durable."""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.groups.commands import CommitOffsets, CommitOffsetsResult, OffsetToCommit
from quorate.groups.records import TopicPartition
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, PartitionIndex, TopicId, TopicName
from quorate.metadata.image import MetadataImage
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_FROM = 10
_DEFAULT_RETENTION = -1


def handle(node: Node, context: RequestContext, request: OffsetCommitRequest) -> HandlerResult:
    return _commit(node, context, request)


async def _commit(node: Node, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    image = node.metadata.image
    names = [_name(context, image, topic) for topic in request.topics]
    offsets = tuple(
        _offset(name, partition)
        for name, topic in zip(names, request.topics, strict=True)
        for partition in topic.partitions
        if name is not None and image.partition(name, PartitionIndex(partition.partition_index)) is not None
    )
    command = CommitOffsets(
        group_id=GroupId(request.group_id),
        generation=request.generation_id_or_member_epoch,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        offsets=offsets,
        retention_time_ms=None if request.retention_time_ms == _DEFAULT_RETENTION else request.retention_time_ms,
    )
    result = await node.groups.ask(command.group_id, command, CommitOffsetsResult)
    return OffsetCommitResponse(
        topics=[_answer(name, topic, result) for name, topic in zip(names, request.topics, strict=True)]
    )


def _name(context: RequestContext, image: MetadataImage, topic: OffsetCommitRequestTopic) -> TopicName | None:
    """The topic's name; None for an id that no topic has."""
    if context.api_version >= _TOPIC_IDS_FROM:
        return image.topic_names.get(TopicId(topic.topic_id))
    return TopicName(topic.name)


def _offset(name: TopicName, partition: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic_partition=TopicPartition(name, PartitionIndex(partition.partition_index)),
        offset=Offset(partition.committed_offset),
        leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
        metadata=partition.committed_metadata or "",
    )


def _answer(
    name: TopicName | None, topic: OffsetCommitRequestTopic, result: CommitOffsetsResult
) -> OffsetCommitResponseTopic:
    def error(index: int) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        key = TopicPartition(name, PartitionIndex(index))
        return result.errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error(partition.partition_index)
            )
            for partition in topic.partitions
        ],
    )


API = Api(request=OffsetCommitRequest, min_version=2, max_version=10, handle=handle)
