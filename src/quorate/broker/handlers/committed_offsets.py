"""How far groups have read, as they have stored it.

- OffsetFetch, versions 1 to 10: one group a request, or (from 8 on) many. With ``require_stable`` an offset that an
  open transaction may still change is answered with UNSTABLE_OFFSET_COMMIT.
- OffsetDelete, version 0: forgets how far a group has read in topics that it does not read any more.
"""

import asyncio
from collections.abc import Mapping, Sequence

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import (
    NO_GENERATION,
    DeleteOffsets,
    DeleteOffsetsResult,
    FetchOffsets,
    FetchOffsetsResult,
)
from quorate.coordination.groups.core.records import CommittedOffset
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    GroupId,
    MemberId,
    Offset,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_GROUP_ERROR_FROM = 2
_MANY_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_NO_NAME = TopicName("")
_NOTHING = CommittedOffset(offset=Offset(-1), leader_epoch=NO_LEADER_EPOCH, metadata="", commit_timestamp_ms=-1)

Offsets = Mapping[TopicPartition, CommittedOffset]


async def offset_fetch(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= _MANY_GROUPS_FROM:
        return await _fetch_many(services, context, request)
    return await _fetch_one(services, context, request)


async def _fetch_many(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    groups = await asyncio.gather(
        *(_fetch_group(services, context, group, require_stable=request.require_stable) for group in request.groups)
    )
    return OffsetFetchResponse(groups=groups)


async def _fetch_group(
    services: Services, context: RequestContext, group: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    image = services.metadata.image
    topics = group.topics
    if topics is not None and context.api_version >= _TOPIC_IDS_FROM:
        topics = [_with_name(image, topic) for topic in topics]
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    result = await _ask(
        services,
        group.group_id,
        wanted,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        require_stable=require_stable,
    )
    if topics is None:
        topics = [
            OffsetFetchRequestTopics(name=name, topic_id=_topic_id(image, name), partition_indexes=indexes)
            for name, indexes in _by_topic(result)
        ]
    return OffsetFetchResponseGroup(
        group_id=group.group_id,
        error_code=result.error,
        topics=[_topic(topic, result) for topic in topics] if result.error is ErrorCode.NONE else [],
    )


def _with_name(image: MetadataImage, topic: OffsetFetchRequestTopics) -> OffsetFetchRequestTopics:
    """From version 10 on topics come by id; the name stays empty where no topic has it."""
    name = image.topic_names.get(TopicId(topic.topic_id), _NO_NAME)
    return OffsetFetchRequestTopics(name=name, topic_id=topic.topic_id, partition_indexes=topic.partition_indexes)


def _topic_id(image: MetadataImage, name: str) -> TopicId:
    topic = image.topics.get(TopicName(name))
    return NO_TOPIC_ID if topic is None else topic.topic_id


def _topic(topic: OffsetFetchRequestTopics, result: FetchOffsetsResult) -> OffsetFetchResponseTopics:
    found = [(index, _offset(result.offsets, topic.name, index)) for index in topic.partition_indexes]
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=_error(result, topic.name, index) if topic.name else ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for index, committed in found
        ],
    )


async def _fetch_one(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    topics = request.topics
    wanted = None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]
    result = await _ask(services, request.group_id, wanted, require_stable=request.require_stable)
    has_group_error = context.api_version >= _GROUP_ERROR_FROM
    if result.error is not ErrorCode.NONE and has_group_error:
        return OffsetFetchResponse(error_code=result.error)
    return OffsetFetchResponse(
        topics=[
            _topic_before_many_groups(name, indexes, result)
            for name, indexes in (_by_topic(result) if wanted is None else wanted)
        ]
    )


def _topic_before_many_groups(
    name: str, indexes: Sequence[int], result: FetchOffsetsResult
) -> OffsetFetchResponseTopic:
    found = [(index, _offset(result.offsets, name, index)) for index in indexes]
    return OffsetFetchResponseTopic(
        name=name,
        partitions=[
            OffsetFetchResponsePartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                metadata=committed.metadata,
                error_code=_error(result, name, index),
            )
            for index, committed in found
        ],
    )


async def _ask(
    services: Services,
    group_id: str,
    wanted: Sequence[tuple[str, Sequence[int]]] | None,
    *,
    member_id: str | None = None,
    member_epoch: int = NO_GENERATION,
    require_stable: bool,
) -> FetchOffsetsResult:
    keys = None
    if wanted is not None:
        keys = tuple(
            TopicPartition(TopicName(name), PartitionIndex(index)) for name, indexes in wanted for index in indexes
        )
    command = FetchOffsets(
        group_id=GroupId(group_id),
        topic_partitions=keys,
        member_id=None if member_id is None else MemberId(member_id),
        member_epoch=member_epoch,
        require_stable=require_stable,
    )
    return await services.groups.ask(command.group_id, command, FetchOffsetsResult)


def _by_topic(result: FetchOffsetsResult) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(result.offsets.keys() | result.unstable):
        topics.setdefault(topic, []).append(partition)
    return list(topics.items())


def _offset(offsets: Offsets, name: str, index: int) -> CommittedOffset:
    return offsets.get(TopicPartition(TopicName(name), PartitionIndex(index)), _NOTHING)


def _error(result: FetchOffsetsResult, name: str, index: int) -> ErrorCode:
    is_unstable = TopicPartition(TopicName(name), PartitionIndex(index)) in result.unstable
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else result.error


async def offset_delete(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
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


OFFSET_FETCH = Api(
    request=OffsetFetchRequest,
    min_version=1,
    max_version=10,
    handle=offset_fetch,
    parts=(
        Parts(
            of=("groups", "topics", "partition_indexes"),
            into=("groups", "topics", "partitions"),
            distinct_by=("group_id",),
        ),
        Parts(of=("topics", "partition_indexes"), into=("topics", "partitions")),
    ),
)
OFFSET_DELETE = Api(
    request=OffsetDeleteRequest,
    min_version=0,
    max_version=0,
    handle=offset_delete,
    parts=(Parts(of=("topics", "partitions"), into=("topics", "partitions")),),
)
