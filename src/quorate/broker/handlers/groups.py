"""Groups from outside: who coordinates them, and what they are.

- FindCoordinator, versions 0 to 6: which node coordinates a group or a transactional id, one key or (from 4 on) many.
  Gap: there are no share groups yet; a question for their coordinators is refused for good, so that clients fail at
  once instead of retrying.
- ListGroups, versions 0 to 5: the groups that this node coordinates, by state and type.
- DescribeGroups, versions 0 to 6: state, protocol and members of groups.
- ConsumerGroupDescribe, versions 0 to 1: state, epochs, members and assignments of consumer groups (KIP-848).
- DeleteGroups, versions 0 to 2: forgets groups without members, with all that they have committed.

Groups and topics that the client may not describe are left out.
"""

import asyncio
from typing import TypeVar

import msgspec

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import (
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    ListGroups,
)
from quorate.coordination.groups.core.consumer.commands import (
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
    DescribedConsumerMember,
)
from quorate.coordination.groups.core.consumer.topics import Partitions, by_topic
from quorate.kernel.errors import ErrorCode, KafkaError, clip
from quorate.kernel.ids import NO_NODE, GroupId, TransactionalId
from quorate.metadata.core.image import Broker, MetadataImage
from quorate.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from quorate.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from quorate.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from quorate.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from quorate.security.acls import AclResourceType
from quorate.security.api_rules import LISTED_GROUPS, TOPICS_OF_DESCRIBED_GROUPS

GroupT = TypeVar("GroupT", DescribedGroup, DescribedConsumerGroup)
_GROUP_KEY = 0
_TRANSACTION_KEY = 1
_MANY_KEYS_FROM = 4
_NOT_FOUND_FROM = 6
_CLASSIC_MEMBER = 0
_CONSUMER_MEMBER = 1


async def find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.api_version >= _MANY_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[await _find(services, context, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(services, context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(services: Services, context: RequestContext, key_type: int, key: str) -> Coordinator:
    try:
        broker = await _find_broker(services, key_type, key)
        where = broker.endpoint(context.listener)
        if where is None:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"Broker {broker.node_id} has no listener {context.listener}."
            )
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=broker.node_id, host=where.host, port=where.port, error_message=None)


async def _find_broker(services: Services, key_type: int, key: str) -> Broker:
    if key_type not in (_GROUP_KEY, _TRANSACTION_KEY):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only consumer groups and transactions have a coordinator here.")
    if key_type == _TRANSACTION_KEY and not key:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id cannot be empty.")
    await services.quorum.leadership_uncertainty.end()
    if key_type == _TRANSACTION_KEY:
        return await services.transactions.find(TransactionalId(key))
    return await services.groups.find(GroupId(key))


async def list_groups(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    command = ListGroups(
        states=frozenset(state.lower() for state in request.states_filter),
        types=frozenset(group_type.lower() for group_type in request.types_filter),
    )
    result = await services.groups.list_groups(command)
    visible = context.access.allowed(LISTED_GROUPS, (group.group_id for group in result.groups))
    return ListGroupsResponse(
        error_code=result.error,
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in result.groups
            if group.group_id in visible
        ],
    )


async def describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    groups = await asyncio.gather(*(_describe_one(services, context, GroupId(name)) for name in request.groups))
    if request.include_authorized_operations:
        groups = [_with_operations(context, group) for group in groups]
    return DescribeGroupsResponse(groups=groups)


def _with_operations(context: RequestContext, group: GroupT) -> GroupT:
    if group.error_code:
        return group
    operations = context.access.operations(AclResourceType.GROUP, group.group_id)
    return msgspec.structs.replace(group, authorized_operations=operations)


async def _describe_one(services: Services, context: RequestContext, group_id: GroupId) -> DescribedGroup:
    result = await services.groups.ask(group_id, DescribeGroup(group_id=group_id), DescribeGroupResult)
    error, message = result.error, None
    if error is ErrorCode.GROUP_ID_NOT_FOUND:
        if context.api_version >= _NOT_FOUND_FROM:
            message = f"Group {clip(group_id)} not found."
        else:
            error = ErrorCode.NONE  # Before KIP-1043 a group that is not there was told from its state, Dead.
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=result.state if error in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND) else "",
        protocol_type=result.protocol_type,
        protocol_data=result.protocol_name,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in result.members
        ],
    )


async def consumer_group_describe(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = await asyncio.gather(*(_describe_consumer_group(services, GroupId(name)) for name in request.group_ids))
    if request.include_authorized_operations:
        groups = [_with_operations(context, group) for group in groups]
    if not context.access.is_full:
        groups = [_as_far_as_visible(context, group) for group in groups]
    return ConsumerGroupDescribeResponse(groups=groups)


def _as_far_as_visible(context: RequestContext, group: DescribedConsumerGroup) -> DescribedConsumerGroup:
    """Nothing of the members of a group, where these have topics that the client may not describe."""
    topics = {
        topic.topic_name
        for member in group.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
    if context.access.allowed(TOPICS_OF_DESCRIBED_GROUPS, topics) == topics:
        return group
    return DescribedConsumerGroup(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        error_message="The group has described topic(s) that the client is not authorized to describe.",
        group_id=group.group_id,
    )


async def _describe_consumer_group(services: Services, group_id: GroupId) -> DescribedConsumerGroup:
    if not group_id:
        return DescribedConsumerGroup(error_code=ErrorCode.INVALID_GROUP_ID, error_message=None, group_id=group_id)
    result = await services.groups.ask(group_id, DescribeConsumerGroup(group_id=group_id), DescribeConsumerGroupResult)
    image = services.metadata.image
    return DescribedConsumerGroup(
        error_code=result.error,
        error_message=result.message,
        group_id=group_id,
        group_state="" if result.error else result.state,
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


async def delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await asyncio.gather(*(_delete_one(services, GroupId(name)) for name in names)))


async def _delete_one(services: Services, group_id: GroupId) -> DeletableGroupResult:
    result = await services.groups.ask(group_id, DeleteGroup(group_id=group_id), DeleteGroupResult)
    return DeletableGroupResult(group_id=group_id, error_code=result.error)


FIND_COORDINATOR = Api(
    request=FindCoordinatorRequest,
    min_version=0,
    max_version=6,
    handle=find_coordinator,
    parts=(Parts(of=("coordinator_keys",), into=("coordinators",), distinct_by=()),),
)
LIST_GROUPS = Api(request=ListGroupsRequest, min_version=0, max_version=5, handle=list_groups)
DESCRIBE_GROUPS = Api(
    request=DescribeGroupsRequest,
    min_version=0,
    max_version=6,
    handle=describe_groups,
    parts=(Parts(of=("groups",), into=("groups",), distinct_by=(), per_part=20),),
)
CONSUMER_GROUP_DESCRIBE = Api(
    request=ConsumerGroupDescribeRequest,
    min_version=0,
    max_version=1,
    handle=consumer_group_describe,
    parts=(Parts(of=("group_ids",), into=("groups",), distinct_by=(), per_part=10),),
)
DELETE_GROUPS = Api(
    request=DeleteGroupsRequest,
    min_version=0,
    max_version=2,
    handle=delete_groups,
    parts=(Parts(of=("groups_names",), into=("results",), distinct_by=(), per_part=20),),
)
