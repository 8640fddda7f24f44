"""InitProducerId, versions 0 to 5, for idempotent producers. Gap: transactional ids are refused."""

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


def handle(node: Node, context: RequestContext, request: InitProducerIdRequest) -> HandlerResult:
    if request.transactional_id is not None:
        code = (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if request.transactional_id else ErrorCode.INVALID_REQUEST
        )
        return InitProducerIdResponse(error_code=code, producer_epoch=-1)
    return _take_id(node)


async def _take_id(node: Node) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await node.producer_ids.take(), producer_epoch=0)
    except KafkaError as error:
        return InitProducerIdResponse(error_code=error.code, producer_epoch=-1)


API = Api(request=InitProducerIdRequest, min_version=0, max_version=5, handle=handle)
