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
from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import islice
from typing import Any

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.leader_hints import endpoints
from quorate.broker.node import Node
from quorate.broker.produce.doubted_refusals import refuted
from quorate.broker.produce.pending import PendingProduce, UncommittedWrite
from quorate.broker.produce.transaction import TransactionOfRequest, with_own_records
from quorate.broker.produce.write import ProduceWrite, find_led, leaders_named_in, refused
from quorate.protocol.messages.produce import (
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: At once, later, or none at all where none is wanted.
_Answer = ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None


def handle(node: Node, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    if request.transactional_id is None:
        return _serve(node, context, request, None)
    return _serve_transactional(node, context, request)


def _serve(
    node: Node, context: RequestContext, request: ProduceRequest, transaction: TransactionOfRequest | None
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | None] | None:
    write = ProduceWrite(node, context.api_version, request, transaction)
    if write.proceed() is None:
        return _answer(node, context, request, write)
    written = node.record_opening.run(write.finish())
    context.hold(written)
    return _answer_after(written, node, context, request, write)


async def _answer_after(
    written: "asyncio.Task[None]", node: Node, context: RequestContext, request: ProduceRequest, write: ProduceWrite
) -> ProduceResponse | None:
    await asyncio.shield(written)
    answer = _answer(node, context, request, write)
    return await answer if isinstance(answer, Coroutine) else answer


def _answer(node: Node, context: RequestContext, request: ProduceRequest, write: ProduceWrite) -> _Answer:
    """Once all is written."""
    throttle_time_ms = node.quotas.throttle_produce(context)
    if request.acks == 0:
        return None
    # Made here, not when the coroutine first runs: the client's time counts from now.
    pending = _pending(node, request, write.uncommitted) if write.uncommitted else None
    if pending is not None or write.doubted:
        return _respond_later(node, context.api_version, request, write, pending, throttle_time_ms=throttle_time_ms)
    return _response(node, request, write.answers, throttle_time_ms)


def _pending(node: Node, request: ProduceRequest, uncommitted: list[UncommittedWrite]) -> PendingProduce | None:
    if request.acks == -1:
        return PendingProduce(node.loop, request.timeout_ms, uncommitted)
    alone = [write for write in uncommitted if write[1].is_alone_in_sync]
    return PendingProduce(node.loop, request.timeout_ms, alone, acks_all=False) if alone else None


def _serve_transactional(node: Node, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    api_version = context.api_version
    transaction = TransactionOfRequest(
        request,
        api_version,
        find=partial(find_led, node, api_version),
        verifier=node.transaction_verifier,
        turns=node.producer_turns,
        requires_verification=bool(node.broker_config("transaction.partition.verification.enable")),
    )
    if transaction.may_write_at_once:
        return _serve(node, context, request, transaction)
    # The connection reads its next bytes into the memory of these.
    kept = with_own_records(request)

    async def verify_and_write() -> "ProduceResponse | asyncio.Task[ProduceResponse] | None":
        await transaction.verify()
        write = ProduceWrite(node, api_version, kept, transaction)
        if write.proceed() is not None:
            await write.finish()
        answer = _answer(node, context, kept, write)
        # Who comes next need not wait until this is committed.
        return node.loop.create_task(answer) if isinstance(answer, Coroutine) else answer

    return _respond_after(node.producer_turns.run(transaction.producer_id, verify_and_write))


async def _respond_after(
    written: "asyncio.Future[ProduceResponse | asyncio.Task[ProduceResponse] | None]",
) -> ProduceResponse | None:
    response = await written
    return await response if isinstance(response, asyncio.Task) else response


async def _respond_later(
    node: Node,
    api_version: int,
    request: ProduceRequest,
    write: ProduceWrite,
    pending: PendingProduce | None,
    *,
    throttle_time_ms: int,
) -> ProduceResponse:
    answers = write.answers
    errors = await refuted(node.metadata, write.doubted)
    if pending is not None:
        errors |= await pending.future
    if errors:
        topics = [topic for topic in request.topic_data for _ in topic.partition_data]
        for position, error in errors.items():
            index = answers[position].index
            answers[position] = refused(node, api_version, topics[position], index, error)
    return _response(node, request, answers, throttle_time_ms)


def _response(
    node: Node, request: ProduceRequest, answers: list[PartitionProduceResponse], throttle_time_ms: int
) -> ProduceResponse:
    remaining = iter(answers)
    leaders = leaders_named_in(answers)
    where: Sequence[NodeEndpoint] = endpoints(node.metadata.image, leaders, NodeEndpoint) if leaders else ()
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=list(islice(remaining, len(topic.partition_data))),
            )
            for topic in request.topic_data
        ],
        throttle_time_ms=throttle_time_ms,
        node_endpoints=where,
    )


API = Api(request=ProduceRequest, min_version=0, max_version=13, handle=handle, is_hot=True)
