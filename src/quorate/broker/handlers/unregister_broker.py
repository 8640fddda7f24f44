"""UnregisterBroker, version 0.

As in Apache Kafka, a broker that still holds replicas can be unregistered too, unless the request has a field of
Quorate's own that forbids it. The quorum's leader decides.
"""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.core.commands import UnregisterBroker
from quorate.protocol.extensions import CautiousUnregisterBrokerRequest
from quorate.protocol.messages.unregister_broker import UnregisterBrokerResponse


def handle(services: Services, context: RequestContext, request: CautiousUnregisterBrokerRequest) -> HandlerResult:
    return _unregister(services, request)


async def _unregister(services: Services, request: CautiousUnregisterBrokerRequest) -> UnregisterBrokerResponse:
    validate_only = request.validated_broker_id >= 0
    command = UnregisterBroker(
        node_id=NodeId(request.validated_broker_id if validate_only else request.broker_id),
        even_with_replicas=not request.only_without_replicas,
    )
    (outcome,) = await services.metadata.submit([command], validate_only=validate_only)
    if isinstance(outcome, KafkaError):
        return UnregisterBrokerResponse(error_code=outcome.code, error_message=outcome.message)
    return UnregisterBrokerResponse(error_message=None)


API = Api(request=CautiousUnregisterBrokerRequest, min_version=0, max_version=0, handle=handle)
