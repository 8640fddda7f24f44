"""DeleteGroups, versions 0 to 2: forgets groups without members, with all that they have committed."""

import asyncio

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.broker.request_parts import Parts
from quorate.coordination.groups.core.commands import DeleteGroup, DeleteGroupResult
from quorate.kernel.ids import GroupId
from quorate.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(node: Node, context: RequestContext, request: DeleteGroupsRequest) -> HandlerResult:
    return _delete(node, request)


async def _delete(node: Node, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    names = dict.fromkeys(request.groups_names)
    return DeleteGroupsResponse(results=await asyncio.gather(*(_delete_one(node, GroupId(name)) for name in names)))


async def _delete_one(node: Node, group_id: GroupId) -> DeletableGroupResult:
    result = await node.groups.ask(group_id, DeleteGroup(group_id=group_id), DeleteGroupResult)
    return DeletableGroupResult(group_id=group_id, error_code=result.error)


API = Api(
    request=DeleteGroupsRequest,
    min_version=0,
    max_version=2,
    handle=handle,
    parts=(Parts(of=("groups_names",), into=("results",), distinct_by=(), per_part=20),),
)
