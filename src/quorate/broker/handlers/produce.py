"""Produce, versions 0 to 13.

Versions 0 to 2 are there because librdkafka stops compressing without them; every partition of such a request is
answered with UNSUPPORTED_VERSION.
A producer over its quota is answered with the time for which its connection is not read from (KIP-219).
The first records of a transaction are written when its coordinator has confirmed that the partition is part of it, and
from version 12 on that makes it one (KIP-890).
Where a worker has to open a batch first, the connection is not served meanwhile, so that what comes behind it on the
connection is also written behind it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from quorate.broker.api import Api, HandlerResult
from quorate.broker.leader_hints import endpoints
from quorate.broker.produce.answers import leaders_named_in, refused
from quorate.broker.produce.gate import ProduceGate, find_leading
from quorate.broker.produce.pending import PendingProduce, UncommittedWrite
from quorate.broker.produce.sequence_gaps import not_confirmed
from quorate.broker.produce.transaction import TransactionOfRequest, with_own_records
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.kernel.tasks import awaited_task
from quorate.protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.transport.connection import CloseConnection

T = TypeVar("T")

#: The partitions of a request that is answered without a task of its own.
_FEW_PARTITIONS = 100

#: At once, later, or none at all where none is wanted.
_Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | asyncio.Future[ProduceResponse] | None


def produce(services: Services, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    if request.transactional_id is None:
        return _serve(services, context, request, None)
    return _serve_transactional(services, context, request)


def _serve(
    services: Services, context: RequestContext, request: ProduceRequest, transaction: TransactionOfRequest | None
) -> HandlerResult:
    gate = ProduceGate(services, context.api_version, request, transaction)
    if gate.proceed() is None:
        return _answer(services, context, request, gate)
    written = services.record_opening.run(gate.finish())
    context.hold(written)
    return _answer_after(written, services, context, request, gate)


async def _answer_after(
    written: "asyncio.Task[None]",
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    gate: ProduceGate,
) -> ProduceResponse | None:
    await asyncio.shield(written)
    answer = _answer(services, context, request, gate)
    return answer if answer is None or isinstance(answer, ProduceResponse) else await answer


def _answer(services: Services, context: RequestContext, request: ProduceRequest, gate: ProduceGate) -> _Answer:
    """Once all is written."""
    throttle_time_ms = services.quotas.throttle_produce(context)
    if request.acks == 0:
        if any(answer.error_code for answer in gate.answers):
            raise CloseConnection("what a producer without acks has sent was refused")
        return None
    if not gate.uncommitted and not gate.gaps:
        return _response(services, context, request, gate.answers, throttle_time_ms)
    respond = partial(_respond, services, context, request, gate.answers, throttle_time_ms=throttle_time_ms)
    if not gate.gaps and len(gate.answers) <= _FEW_PARTITIONS:
        pending = _pending(services, request, gate.uncommitted, respond)
        return respond({}) if pending is None else pending.future
    # Made here, not when the coroutine first runs: the client's time counts from now.
    errors = _pending(services, request, gate.uncommitted, dict)
    return _respond_later(services, gate, errors, respond)


def _pending(
    services: Services,
    request: ProduceRequest,
    uncommitted: list[UncommittedWrite],
    respond: Callable[[dict[int, KafkaError]], T],
) -> PendingProduce[T] | None:
    acks_all = request.acks == -1
    writes = uncommitted if acks_all else [write for write in uncommitted if write[1].is_alone_in_sync]
    return PendingProduce(services.loop, request.timeout_ms, writes, respond, acks_all=acks_all) if writes else None


def _serve_transactional(services: Services, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    api_version = context.api_version
    transaction = TransactionOfRequest(
        request,
        api_version,
        find=partial(find_leading, services, api_version),
        verifier=services.transaction_verifier,
        turns=services.producer_turns,
        requires_verification=bool(services.broker_config("transaction.partition.verification.enable")),
    )
    if transaction.may_write_at_once:
        return _serve(services, context, request, transaction)
    # The connection reads its next bytes into the memory of these.
    kept = with_own_records(request)

    async def verify_and_write() -> "ProduceResponse | asyncio.Future[ProduceResponse] | CloseConnection | None":
        await transaction.verify()
        gate = ProduceGate(services, api_version, kept, transaction)
        if gate.proceed() is not None:
            await gate.finish()
        try:
            answer = _answer(services, context, kept, gate)
        except CloseConnection as error:
            return error  # It did not fail: the connection may be gone already.
        # Who comes next need not wait until this is committed.
        return awaited_task(services.loop, answer) if isinstance(answer, Coroutine) else answer

    return _respond_after(services.producer_turns.run(transaction.producer_id, verify_and_write))


async def _respond_after(
    written: "asyncio.Future[ProduceResponse | asyncio.Future[ProduceResponse] | CloseConnection | None]",
) -> ProduceResponse | None:
    try:
        response = await written
    finally:
        del written  # It keeps the error that it raises, and that this frame.
    if isinstance(response, CloseConnection):
        raise CloseConnection(str(response))
    return await response if isinstance(response, asyncio.Future) else response


async def _respond_later(
    services: Services,
    gate: ProduceGate,
    pending: PendingProduce[dict[int, KafkaError]] | None,
    respond: Callable[[dict[int, KafkaError]], ProduceResponse],
) -> ProduceResponse:
    errors = await not_confirmed(services.metadata, gate.gaps)
    if pending is not None:
        errors |= await pending.future
    return respond(errors)


def _respond(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    answers: list[PartitionProduceResponse],
    errors: dict[int, KafkaError],
    *,
    throttle_time_ms: int,
) -> ProduceResponse:
    if errors:
        topics = [topic for topic in request.topic_data for _ in topic.partition_data]
        for position, error in errors.items():
            index = answers[position].index
            answers[position] = refused(services, context.api_version, topics[position], index, error)
    return _response(services, context, request, answers, throttle_time_ms)


def _response(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    answers: list[PartitionProduceResponse],
    throttle_time_ms: int,
) -> ProduceResponse:
    leaders = leaders_named_in(answers)
    where: Sequence[NodeEndpoint] = ()
    if leaders:
        where = endpoints(services.metadata.image, leaders, NodeEndpoint, context.listener)
    responses = []
    position = 0
    for topic in request.topic_data:
        begin, position = position, position + len(topic.partition_data)
        responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers[begin:position])
        )
    return ProduceResponse(responses=responses, throttle_time_ms=throttle_time_ms, node_endpoints=where)


PRODUCE = Api(request=ProduceRequest, min_version=0, max_version=13, handle=produce, is_hot=True)
