"""UnregisterBroker, version 0. As in Apache Kafka, a broker that still holds replicas can be unregistered too."""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId
from quorate.metadata.commands import UnregisterBroker
from quorate.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse


def handle(node: Node, context: RequestContext, request: UnregisterBrokerRequest) -> HandlerResult:
    return _unregister(node, request)


async def _unregister(node: Node, request: UnregisterBrokerRequest) -> UnregisterBrokerResponse:
    command = UnregisterBroker(node_id=NodeId(request.broker_id), even_with_replicas=True)
    (outcome,) = await node.metadata.submit([command])
    if isinstance(outcome, KafkaError):
        return UnregisterBrokerResponse(error_code=outcome.code, error_message=outcome.message)
    return UnregisterBrokerResponse(error_message=None)


API = Api(request=UnregisterBrokerRequest, min_version=0, max_version=0, handle=handle)
