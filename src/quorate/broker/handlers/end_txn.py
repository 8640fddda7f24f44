"""EndTxn, versions 0 to 5: commits or aborts. From 5 on the answer holds what the producer goes on with (KIP-890)."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import EndTransaction, EndTransactionResult
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerEpoch, ProducerId, TransactionalId
from quorate.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from quorate.records.control import EPOCH_PER_TRANSACTION

_PRODUCER_FENCED_FROM = 2
_EPOCH_PER_TRANSACTION_FROM = 5


def handle(services: Services, context: RequestContext, request: EndTxnRequest) -> HandlerResult:
    if not request.transactional_id:
        return EndTxnResponse(error_code=ErrorCode.INVALID_REQUEST)
    return _end(services, context, request)


async def _end(services: Services, context: RequestContext, request: EndTxnRequest) -> EndTxnResponse:
    command = EndTransaction(
        transactional_id=TransactionalId(request.transactional_id),
        producer_id=ProducerId(request.producer_id),
        producer_epoch=ProducerEpoch(request.producer_epoch),
        commits=request.committed,
        client_version=EPOCH_PER_TRANSACTION if context.api_version >= _EPOCH_PER_TRANSACTION_FROM else 0,
    )
    result = await services.transactions.ask(command, EndTransactionResult)
    if result.error is ErrorCode.PRODUCER_FENCED and context.api_version < _PRODUCER_FENCED_FROM:
        return EndTxnResponse(error_code=ErrorCode.INVALID_PRODUCER_EPOCH)
    return EndTxnResponse(error_code=result.error, producer_id=result.producer_id, producer_epoch=result.producer_epoch)


API = Api(request=EndTxnRequest, min_version=0, max_version=5, handle=handle)
