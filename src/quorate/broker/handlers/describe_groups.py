"""DescribeGroups, versions 0 to 6: state, protocol and members of groups.

Gap: authorized operations are not reported.
"""

import asyncio

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import DescribeGroup, DescribeGroupResult
from quorate.kernel.errors import ErrorCode, clip
from quorate.kernel.ids import GroupId
from quorate.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

_NOT_FOUND_FROM = 6


def handle(services: Services, context: RequestContext, request: DescribeGroupsRequest) -> HandlerResult:
    return _describe(services, context, request)


async def _describe(
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


API = Api(
    request=DescribeGroupsRequest,
    min_version=0,
    max_version=6,
    handle=handle,
    parts=(Parts(of=("groups",), into=("groups",), distinct_by=(), per_part=20),),
)
