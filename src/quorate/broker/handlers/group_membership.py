"""Members of groups, from joining to leaving.

The classic protocol:

- JoinGroup, versions 0 to 9: a member asks to be part of the next generation of its group.
- SyncGroup, versions 0 to 5: the leader hands in the assignment, every member gets its share.
- Heartbeat, versions 0 to 4: a member says that it lives, and hears whether its group rebalances.
- LeaveGroup, versions 0 to 5: one member leaves, or (from 3 on) many of them in one request.

The newer one (KIP-848):

- ConsumerGroupHeartbeat, versions 0 to 1: a member of a consumer group joins, stays, gets partitions, or leaves.
"""

from collections.abc import Collection
from functools import partial

from quorate.broker.api import Api
from quorate.broker.request_access import RequestAccess
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.commands import (
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    SyncGroup,
    SyncGroupResult,
)
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat
from quorate.coordination.groups.core.consumer.topics import AssignedPartition, Partitions, by_topic
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.protocol.messages.consumer_group_heartbeat import Assignment as HeldAssignment
from quorate.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from quorate.security.api_rules import SUBSCRIBED_BY_PATTERN

_REBALANCE_TIMEOUT_FROM = 1
_KNOWN_MEMBER_ID_FROM = 4
_NULL_PROTOCOL_FROM = 7
#: In SyncGroup.
_PROTOCOL_NAMED_FROM = 5
_SKIP_ASSIGNMENT_FROM = 9
_MANY_MEMBERS_FROM = 3
_UNCHANGED = -1
_MEMBER_CHOOSES_ID_FROM = 1


async def join_group(services: Services, context: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    command = _join_command(context, request)
    result = await services.groups.ask(command.group_id, command, JoinGroupResult)
    no_protocol = None if context.api_version >= _NULL_PROTOCOL_FROM else ""
    return JoinGroupResponse(
        error_code=result.error,
        generation_id=result.generation,
        protocol_type=result.protocol_type,
        protocol_name=no_protocol if result.protocol_name is None else result.protocol_name,
        leader=result.leader,
        skip_assignment=result.skip_assignment,
        member_id=result.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata
            )
            for member in result.members
        ],
    )


def _join_command(context: RequestContext, request: JoinGroupRequest) -> JoinGroup:
    version = context.api_version
    return JoinGroup(
        group_id=GroupId(request.group_id),
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",  # As Java prints an address; tools show it like this.
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms
        if version >= _REBALANCE_TIMEOUT_FROM
        else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(
            GroupProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in request.protocols
        ),
        require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM,
        supports_skip_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )


async def sync_group(services: Services, context: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if context.api_version >= _PROTOCOL_NAMED_FROM and None in (request.protocol_type, request.protocol_name):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    command = SyncGroup(
        group_id=GroupId(request.group_id),
        generation=request.generation_id,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignments={MemberId(share.member_id): share.assignment for share in request.assignments},
    )
    result = await services.groups.ask(command.group_id, command, SyncGroupResult)
    return SyncGroupResponse(
        error_code=result.error,
        protocol_type=result.protocol_type,
        protocol_name=result.protocol_name,
        assignment=result.assignment,
    )


async def heartbeat(services: Services, context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    command = GroupHeartbeat(
        group_id=GroupId(request.group_id),
        generation=request.generation_id,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
    )
    result = await services.groups.ask(command.group_id, command, GroupHeartbeatResult)
    return HeartbeatResponse(error_code=result.error)


async def leave_group(services: Services, context: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if context.api_version >= _MANY_MEMBERS_FROM:
        return await _leave_many(services, request)
    return await _leave_one(services, request)


async def _leave_many(services: Services, request: LeaveGroupRequest) -> LeaveGroupResponse:
    members = tuple(
        LeavingMember(member_id=MemberId(member.member_id), group_instance_id=member.group_instance_id)
        for member in request.members
    )
    result = await _leave(services, request, members)
    return LeaveGroupResponse(
        error_code=result.error,
        members=[
            MemberResponse(
                member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=member.error
            )
            for member in result.members
        ],
    )


async def _leave_one(services: Services, request: LeaveGroupRequest) -> LeaveGroupResponse:
    leaving = LeavingMember(member_id=MemberId(request.member_id), group_instance_id=None)
    result = await _leave(services, request, (leaving,))
    if result.error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=result.error)
    return LeaveGroupResponse(error_code=result.members[0].error)


async def _leave(
    services: Services, request: LeaveGroupRequest, members: tuple[LeavingMember, ...]
) -> LeaveGroupResult:
    command = LeaveGroup(group_id=GroupId(request.group_id), members=members)
    return await services.groups.ask(command.group_id, command, LeaveGroupResult)


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
    visible = None if context.access.is_full else partial(_visible, services, context.access)
    result = await services.groups.heartbeat(command, visible)
    return ConsumerGroupHeartbeatResponse(
        error_code=result.error,
        error_message=result.message,
        member_id=result.member_id,
        member_epoch=result.member_epoch,
        heartbeat_interval_ms=result.heartbeat_interval_ms,
        assignment=None if result.assignment is None else _held(result.assignment),
    )


async def _visible(services: Services, access: RequestAccess, names: Collection[TopicName]) -> frozenset[TopicName]:
    """Those of the topics that match a pattern which the member may know of."""
    return frozenset([name async for name in services.turns.sliced(names) if access.may(SUBSCRIBED_BY_PATTERN, name)])


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


JOIN_GROUP = Api(request=JoinGroupRequest, min_version=0, max_version=9, handle=join_group, max_elements=10_000)
SYNC_GROUP = Api(request=SyncGroupRequest, min_version=0, max_version=5, handle=sync_group, max_elements=10_000)
HEARTBEAT = Api(request=HeartbeatRequest, min_version=0, max_version=4, handle=heartbeat)
LEAVE_GROUP = Api(request=LeaveGroupRequest, min_version=0, max_version=5, handle=leave_group, max_elements=10_000)
CONSUMER_GROUP_HEARTBEAT = Api(
    request=ConsumerGroupHeartbeatRequest, min_version=0, max_version=1, handle=consumer_group_heartbeat
)
