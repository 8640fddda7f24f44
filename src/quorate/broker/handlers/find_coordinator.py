"""FindCoordinator, versions 0 to 6: which node coordinates a group or a transactional id, one key or (from 4 on) many.

Gap: there are no share groups yet; a question for their coordinators is refused for good, so that clients fail at once
instead of retrying.
"""

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, GroupId, TransactionalId
from quorate.metadata.core.image import Broker
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

_GROUP = 0
_TRANSACTION = 1
_MANY_KEYS_FROM = 4


async def find_coordinator(
    services: Services, context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if context.api_version >= _MANY_KEYS_FROM:
        return FindCoordinatorResponse(
            coordinators=[await _find(services, request.key_type, key) for key in request.coordinator_keys]
        )
    found = await _find(services, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


async def _find(services: Services, key_type: int, key: str) -> Coordinator:
    try:
        broker = await _find_broker(services, key_type, key)
    except KafkaError as error:
        return Coordinator(
            key=key, node_id=NO_NODE, host="", port=-1, error_code=error.code, error_message=error.message
        )
    return Coordinator(key=key, node_id=broker.node_id, host=broker.host, port=broker.port, error_message=None)


async def _find_broker(services: Services, key_type: int, key: str) -> Broker:
    if key_type not in (_GROUP, _TRANSACTION):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Only consumer groups and transactions have a coordinator here.")
    if key_type == _TRANSACTION and not key:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A transactional id cannot be empty.")
    await services.quorum.leader_doubt.end()
    if key_type == _TRANSACTION:
        return await services.transactions.find(TransactionalId(key))
    return await services.groups.find(GroupId(key))


FIND_COORDINATOR = Api(
    request=FindCoordinatorRequest,
    min_version=0,
    max_version=6,
    handle=find_coordinator,
    parts=(Parts(of=("coordinator_keys",), into=("coordinators",), distinct_by=()),),
)
