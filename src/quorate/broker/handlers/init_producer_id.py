"""InitProducerId, versions 0 to 5: an id and an epoch for a producer, idempotent or with a transactional id."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import InitProducer, InitProducerResult
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, ProducerEpoch, ProducerId, TransactionalId
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

#: Before it, producers know a successor by the older error (KIP-588).
_PRODUCER_FENCED_FROM = 4


def handle(services: Services, context: RequestContext, request: InitProducerIdRequest) -> HandlerResult:
    if request.transactional_id is None:
        return _take_id(services)
    if not request.transactional_id or _is_half_expected(request):
        return _refused(ErrorCode.INVALID_REQUEST)
    return _init_transactional(services, context, request, TransactionalId(request.transactional_id))


def _is_half_expected(request: InitProducerIdRequest) -> bool:
    return (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH)


async def _take_id(services: Services) -> InitProducerIdResponse:
    try:
        return InitProducerIdResponse(producer_id=await services.producer_ids.take(), producer_epoch=0)
    except KafkaError as error:
        return _refused(error.code)


async def _init_transactional(
    services: Services, context: RequestContext, request: InitProducerIdRequest, transactional_id: TransactionalId
) -> InitProducerIdResponse:
    command = InitProducer(
        transactional_id=transactional_id,
        timeout_ms=request.transaction_timeout_ms,
        expected_producer_id=ProducerId(request.producer_id),
        expected_producer_epoch=ProducerEpoch(request.producer_epoch),
    )
    result = await services.transactions.ask(command, InitProducerResult)
    if result.error is ErrorCode.PRODUCER_FENCED and context.api_version < _PRODUCER_FENCED_FROM:
        return _refused(ErrorCode.INVALID_PRODUCER_EPOCH)
    return InitProducerIdResponse(
        error_code=result.error, producer_id=result.producer_id, producer_epoch=result.producer_epoch
    )


def _refused(code: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=code, producer_epoch=NO_PRODUCER_EPOCH)


API = Api(request=InitProducerIdRequest, min_version=0, max_version=5, handle=handle)
