"""SyncGroup, versions 0 to 5: the leader hands in the assignment, every member gets its share."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import SyncGroup, SyncGroupResult
from quorate.kernel.ids import GroupId, MemberId
from quorate.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(services: Services, context: RequestContext, request: SyncGroupRequest) -> HandlerResult:
    return _sync(services, request)


async def _sync(services: Services, request: SyncGroupRequest) -> SyncGroupResponse:
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


API = Api(request=SyncGroupRequest, min_version=0, max_version=5, handle=handle, max_elements=10_000)
