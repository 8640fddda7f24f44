"""Heartbeat, versions 0 to 4: a member says that it lives, and hears whether its group rebalances."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import GroupHeartbeat, GroupHeartbeatResult
from quorate.kernel.ids import GroupId, MemberId
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(services: Services, context: RequestContext, request: HeartbeatRequest) -> HandlerResult:
    return _heartbeat(services, request)


async def _heartbeat(services: Services, request: HeartbeatRequest) -> HeartbeatResponse:
    command = GroupHeartbeat(
        group_id=GroupId(request.group_id),
        generation=request.generation_id,
        member_id=MemberId(request.member_id),
        group_instance_id=request.group_instance_id,
    )
    result = await services.groups.ask(command.group_id, command, GroupHeartbeatResult)
    return HeartbeatResponse(error_code=result.error)


API = Api(request=HeartbeatRequest, min_version=0, max_version=4, handle=handle)
