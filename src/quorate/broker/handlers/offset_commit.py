"""OffsetCommit, versions 2 to 9: stores how far a group has read. Answered when the offsets are durable."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import CommitOffsets, CommitOffsetsResult, OffsetToCommit
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_DEFAULT_RETENTION = -1
_MEMBER_EPOCHS_FROM = 9


def handle(services: Services, context: RequestContext, request: OffsetCommitRequest) -> HandlerResult:
    return _commit(services, context, request)


async def _commit(services: Services, context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    image = services.metadata.image
    command = CommitOffsets(
        group_id=GroupId(request.group_id),
        generation=request.generation_id_or_member_epoch,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        offsets=tuple(
            _offset(TopicName(topic.name), partition)
            for topic in request.topics
            for partition in topic.partitions
            if image.partition(TopicName(topic.name), PartitionIndex(partition.partition_index)) is not None
        ),
        supports_member_epochs=context.api_version >= _MEMBER_EPOCHS_FROM,
        retention_time_ms=None if request.retention_time_ms == _DEFAULT_RETENTION else request.retention_time_ms,
    )
    result = await services.groups.ask(command.group_id, command, CommitOffsetsResult)
    return OffsetCommitResponse(topics=[_answer(topic, result) for topic in request.topics])


def _offset(name: TopicName, partition: OffsetCommitRequestPartition) -> OffsetToCommit:
    return OffsetToCommit(
        topic_partition=TopicPartition(name, PartitionIndex(partition.partition_index)),
        offset=Offset(partition.committed_offset),
        leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
        metadata=partition.committed_metadata or "",
    )


def _answer(topic: OffsetCommitRequestTopic, result: CommitOffsetsResult) -> OffsetCommitResponseTopic:
    def error(index: int) -> ErrorCode:
        key = TopicPartition(TopicName(topic.name), PartitionIndex(index))
        return result.errors.get(key, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    return OffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            OffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=error(partition.partition_index)
            )
            for partition in topic.partitions
        ],
    )


API = Api(
    request=OffsetCommitRequest,
    min_version=2,
    max_version=9,
    handle=handle,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
