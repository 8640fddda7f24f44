"""DeleteGroups, versions 0 to 2: forgets groups without members, with all that they have committed."""

import asyncio

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.coordination.groups.core.commands import DeleteGroup, DeleteGroupResult
from quorate.kernel.ids import GroupId
from quorate.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(services: Services, context: RequestContext, request: DeleteGroupsRequest) -> HandlerResult:
    return _delete(services, request)


async def _delete(services: Services, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await asyncio.gather(*(_delete_one(services, GroupId(name)) for name in names)))


async def _delete_one(services: Services, group_id: GroupId) -> DeletableGroupResult:
    result = await services.groups.ask(group_id, DeleteGroup(group_id=group_id), DeleteGroupResult)
    return DeletableGroupResult(group_id=group_id, error_code=result.error)


API = Api(
    request=DeleteGroupsRequest,
    min_version=0,
    max_version=2,
    handle=handle,
    parts=(Parts(of=("groups_names",), into=("results",), distinct_by=(), per_part=20),),
)
