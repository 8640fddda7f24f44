"""FindCoordinator, versions 0 to 6: which node coordinates a group, one key a request or (from 4 on) many.

Gap: there are no transactions and no share groups yet; a question for their coordinators is refused for good, so that
clients fail at once instead of retrying.
"""

import asyncio

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, GroupId
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0
_MANY_KEYS_FROM = 4


def handle(node: Node, context: RequestContext, request: FindCoordinatorRequest) -> HandlerResult:
    if context.api_version >= _MANY_KEYS_FROM:
        return _find_many(node, request)
    return _find_one(node, request)


async def _find_many(node: Node, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    found = await asyncio.gather(*(_find(node, request.key_type, key) for key in request.coordinator_keys))
    return FindCoordinatorResponse(coordinators=found)


async def _find_one(node: Node, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    found = await _find(node, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(node: Node, key_type: int, key: str) -> Coordinator:
    try:
        if key_type != _GROUP:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Only consumer groups have a coordinator here.")
        await node.quorum.leader_doubt.end()
        broker = await node.groups.find(GroupId(key))
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port, error_message=None)


API = Api(request=FindCoordinatorRequest, min_version=0, max_version=6, handle=handle)
