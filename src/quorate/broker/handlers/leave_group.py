"""LeaveGroup, versions 0 to 5: one member leaves, or (from 3 on) many of them in one request."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import LeaveGroup, LeaveGroupResult, LeavingMember
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId
from quorate.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

_MANY_MEMBERS_FROM = 3


def handle(services: Services, context: RequestContext, request: LeaveGroupRequest) -> HandlerResult:
    if context.api_version >= _MANY_MEMBERS_FROM:
        return _leave_many(services, request)
    return _leave_one(services, request)


async def _leave_many(services: Services, request: LeaveGroupRequest) -> LeaveGroupResponse:
    members = tuple(
        LeavingMember(member_id=MemberId(member.member_id), group_instance_id=member.group_instance_id)
        for member in request.members
    )
    result = await _ask(services, request, members)
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
    result = await _ask(services, request, (leaving,))
    if result.error is not ErrorCode.NONE:
        return LeaveGroupResponse(error_code=result.error)
    return LeaveGroupResponse(error_code=result.members[0].error)


async def _ask(services: Services, request: LeaveGroupRequest, members: tuple[LeavingMember, ...]) -> LeaveGroupResult:
    command = LeaveGroup(group_id=GroupId(request.group_id), members=members)
    return await services.groups.ask(command.group_id, command, LeaveGroupResult)


API = Api(request=LeaveGroupRequest, min_version=0, max_version=5, handle=handle, max_elements=10_000)
