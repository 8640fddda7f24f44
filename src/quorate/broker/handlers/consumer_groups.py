"""Consumer groups in the newer protocol (KIP-848).

- ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, stays, gets partitions, or leaves.
- ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups. Gap: authorized
  operations are not reported.
"""

import asyncio

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.consumer.commands import (
    ConsumerGroupHeartbeat,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
    DescribedConsumerMember,
)
from quorate.coordination.groups.core.consumer.topics import AssignedPartition, Partitions, by_topic
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.metadata.core.image import MetadataImage
from quorate.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from quorate.protocol.messages.consumer_group_heartbeat import (
    Assignment as HeldAssignment,
)
from quorate.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

_UNCHANGED = -1
_MEMBER_CHOOSES_ID_FROM = 1
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def consumer_group_heartbeat(
    services: Services, context: RequestContext, request: ConsumerGroupHeartbeatRequest
) -> ConsumerGroupHeartbeatResponse:
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    command = ConsumerGroupHeartbeat(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=None if timeout_ms == _UNCHANGED else timeout_ms,
        topics=None if names is None else frozenset(map(TopicName, names)),
        pattern=request.subscribed_topic_regex,
        server_assignor=request.server_assignor,
        owned=_owned(request),
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        chooses_member_id=context.api_version >= _MEMBER_CHOOSES_ID_FROM,
    )
    result = await services.groups.heartbeat(command)
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _held(result.assignment),
    )


def _owned(request: ConsumerGroupHeartbeatRequest) -> Partitions | None:
    if request.topic_partitions is None:
        return None
    return frozenset(
        AssignedPartition(TopicId(topic.topic_id), PartitionIndex(index))
        for topic in request.topic_partitions
        for index in topic.partitions
    )


def _held(partitions: Partitions) -> HeldAssignment:
    return HeldAssignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)
        ]
    )


async def consumer_group_describe(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = await asyncio.gather(*(_describe_one(services, GroupId(name)) for name in request.group_ids))
    return ConsumerGroupDescribeResponse(groups=groups)


async def _describe_one(services: Services, group_id: GroupId) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID, error_message=None, group_id=group_id)
    result = await services.groups.ask(group_id, DescribeConsumerGroup(group_id=group_id), DescribeConsumerGroupResult)
    image = services.metadata.image
    return DescribedGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=group_id,
        group_state=result.state,
        group_epoch=result.epoch,
        assignment_epoch=result.target_epoch,
        assignor_name=result.assignor,
        members=[_member(image, member) for member in result.members],
    )


def _member(image: MetadataImage, member: DescribedConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern or "",
        assignment=_assignment(image, member.assigned),
        target_assignment=_assignment(image, member.target),
        member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
    )


def _assignment(image: MetadataImage, partitions: Partitions) -> Assignment:
    named = ((image.topic_names.get(topic_id), topic_id, indexes) for topic_id, indexes in by_topic(partitions))
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=indexes)
            for name, topic_id, indexes in named
            if name is not None  # The topic has just been deleted; the group will hear of it.
        ]
    )


CONSUMER_GROUP_HEARTBEAT = Api(
    request=ConsumerGroupHeartbeatRequest, min_version=0, max_version=1, handle=consumer_group_heartbeat
)
CONSUMER_GROUP_DESCRIBE = Api(
    request=ConsumerGroupDescribeRequest,
    min_version=0,
    max_version=1,
    handle=consumer_group_describe,
    parts=(Parts(of=("group_ids",), into=("groups",), distinct_by=(), per_part=10),),
)
