"""ListTransactions, versions 0 to 2: the transactional ids that this node coordinates, by state, producer and age."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.coordination.transactions.core.commands import ListTransactions
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import ProducerId, TransactionalId
from quorate.kernel.pattern import InvalidPattern, compile_pattern
from quorate.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from quorate.protocol.messages.list_transactions import TransactionState as ListedTransaction

Transactions = tuple[tuple[TransactionalId, Transaction], ...]
_STATES = {state.kafka_name: state for state in TransactionState}


def handle(services: Services, context: RequestContext, request: ListTransactionsRequest) -> HandlerResult:
    return _list(services, request)


async def _list(services: Services, request: ListTransactionsRequest) -> ListTransactionsResponse:
    unknown = [name for name in request.state_filters if name not in _STATES]
    if unknown and len(unknown) == len(request.state_filters):
        return ListTransactionsResponse(unknown_state_filters=unknown)
    command = ListTransactions(
        states=frozenset(_STATES[name] for name in request.state_filters if name in _STATES),
        producer_ids=frozenset(ProducerId(producer_id) for producer_id in request.producer_id_filters),
        min_duration_ms=request.duration_filter,
    )
    result = await services.transactions.list_transactions(command)
    transactions = result.transactions
    if request.transactional_id_pattern:
        try:
            transactions = await services.loop.run_in_executor(
                services.executor, _matching, request.transactional_id_pattern, transactions
            )
        except InvalidPattern:
            return ListTransactionsResponse(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    return ListTransactionsResponse(
        error_code=result.error,
        unknown_state_filters=unknown,
        transaction_states=[
            ListedTransaction(
                transactional_id=transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.kafka_name,
            )
            for transactional_id, transaction in transactions
        ],
    )


def _matching(pattern: str, transactions: Transactions) -> Transactions:
    """Runs in a worker thread: however cheap one match is, there may be many transactional ids."""
    compiled = compile_pattern(pattern)
    return tuple(each for each in transactions if compiled.matches(each[0]))


API = Api(request=ListTransactionsRequest, min_version=0, max_version=2, handle=handle)
