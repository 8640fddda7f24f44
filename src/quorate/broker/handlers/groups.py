"""Groups from outside.

- ListGroups, versions 0 to 5: the groups that this node coordinates, by state and type.
- DescribeGroups, versions 0 to 6: state, protocol and members of groups. Gap: authorized operations are not reported.
- DeleteGroups, versions 0 to 2: forgets groups without members, with all that they have committed.
"""

import asyncio

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
from quorate.kernel.errors import ErrorCode, clip
from quorate.kernel.ids import GroupId
from quorate.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from quorate.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from quorate.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_NOT_FOUND_FROM = 6


async def list_groups(services: Services, context: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    command = ListGroups(
        states=frozenset(state.lower() for state in request.states_filter),
        types=frozenset(group_type.lower() for group_type in request.types_filter),
    )
    result = await services.groups.list_groups(command)
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
        ],
    )


async def describe_groups(
    services: Services, context: RequestContext, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    groups = await asyncio.gather(*(_describe_one(services, context, GroupId(name)) for name in request.groups))
    return DescribeGroupsResponse(groups=groups)


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


async def delete_groups(
    services: Services, context: RequestContext, request: DeleteGroupsRequest
) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await asyncio.gather(*(_delete_one(services, GroupId(name)) for name in names)))


async def _delete_one(services: Services, group_id: GroupId) -> DeletableGroupResult:
    result = await services.groups.ask(group_id, DeleteGroup(group_id=group_id), DeleteGroupResult)
    return DeletableGroupResult(group_id=group_id, error_code=result.error)


LIST_GROUPS = Api(request=ListGroupsRequest, min_version=0, max_version=5, handle=list_groups)
DESCRIBE_GROUPS = Api(
    request=DescribeGroupsRequest,
    min_version=0,
    max_version=6,
    handle=describe_groups,
    parts=(Parts(of=("groups",), into=("groups",), distinct_by=(), per_part=20),),
)
DELETE_GROUPS = Api(
    request=DeleteGroupsRequest,
    min_version=0,
    max_version=2,
    handle=delete_groups,
    parts=(Parts(of=("groups_names",), into=("results",), distinct_by=(), per_part=20),),
)
