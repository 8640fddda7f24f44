"""Produce, versions 0 to 13.

Versions 0 to 2 are there because librdkafka stops compressing without them; every partition of such a request is
answered with UNSUPPORTED_VERSION.
A producer over its quota is answered with the time for which its connection is not read from (KIP-219).
The first records of a transaction are written when its coordinator has confirmed that the partition is part of it, and
from version 12 on that makes it one (KIP-890).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.doubted_refusals import DoubtedRefusal, is_doubted, refuted
from quorate.broker.leader_hints import endpoints, leader_hint
from quorate.broker.node import Node
from quorate.broker.partition import Partition
from quorate.broker.pending_produce import PendingProduce, UncommittedWrite
from quorate.broker.recompression import recompress
from quorate.broker.restored_batches import check_restored
from quorate.broker.transactional_produce import TransactionOfRequest, with_own_records
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicId, TopicName
from quorate.metadata.topic_names import INTERNAL_TOPICS
from quorate.protocol.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from quorate.records.batch import LocatedBatches, is_transactional
from quorate.records.validation import check_keys, validate_produced
from quorate.storage.appending import AppendInfo

_BATCHES_FROM = 3
_HINTS_FROM = 10
_TOPIC_IDS_FROM = 13
_NO_HINT = PartitionProduceResponse().current_leader


def handle(node: Node, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    if request.transactional_id is None:
        return _serve(node, context, request, None)
    return _serve_transactional(node, context, request)


def _serve(
    node: Node, context: RequestContext, request: ProduceRequest, transaction: TransactionOfRequest | None
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse] | None:
    written = _write(node, context.api_version, request, transaction)
    throttle_time_ms = node.quotas.throttle_produce(context)
    if request.acks == 0:
        return None
    # Made here, not when the coroutine first runs: the client's time counts from now.
    pending = _pending(node, request, written.uncommitted) if written.uncommitted else None
    if pending is not None or written.doubted:
        return _respond_later(node, context.api_version, request, written, pending, throttle_time_ms=throttle_time_ms)
    return _response(node, request, written.answers, throttle_time_ms)


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
        find=partial(_partition, node, api_version),
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
        response = _serve(node, context, kept, transaction)
        # Who comes next need not wait until this is committed.
        return node.loop.create_task(response) if isinstance(response, Coroutine) else response

    return _respond_after(node.producer_turns.run(transaction.producer_id, verify_and_write))


async def _respond_after(
    written: "asyncio.Future[ProduceResponse | asyncio.Task[ProduceResponse] | None]",
) -> ProduceResponse | None:
    response = await written
    return await response if isinstance(response, asyncio.Task) else response


class _Written(msgspec.Struct, frozen=True):
    """The answers by position; which of them hold only once committed, and which only from the true leader."""

    answers: list[PartitionProduceResponse] = []
    uncommitted: list[UncommittedWrite] = []
    doubted: list[DoubtedRefusal] = []


def _write(node: Node, api_version: int, request: ProduceRequest, transaction: TransactionOfRequest | None) -> _Written:
    """Append what the request has."""
    refusal = _refusal(api_version, request)
    now_ms = node.clock.now_ms()
    acks_all = request.acks == -1
    written = _Written()
    answers = written.answers
    for topic in request.topic_data:
        for data in topic.partition_data:
            partition: Partition | None = None
            try:
                if refusal is not None:
                    raise refusal
                partition = _partition(node, api_version, topic, data.index)
                batch, found = _checked(api_version, partition, data)
                admit = None
                if transaction is not None:
                    admit = partial(transaction.require_admitted, partition, batch)
                elif is_transactional(batch):
                    raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "A transaction without its id.")
                info = partition.append(batch, now_ms, acks_all=acks_all, found=found, admit=admit)
                if transaction is not None:
                    transaction.appended(partition)
            except KafkaError as error:
                if partition is None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                    _put_off_what_follows(node, api_version, topic, data)
                if partition is not None and is_doubted(error):
                    assert isinstance(data.records, memoryview)  # It was looked into.
                    written.doubted.append(DoubtedRefusal.of(len(answers), partition, data.records))
                answers.append(_refused(node, api_version, topic, data.index, error))
                continue
            if partition.high_watermark <= info.last_offset:
                written.uncommitted.append((len(answers), partition, Offset(info.last_offset + 1)))
            answers.append(_accepted(data.index, info))
    return written


def _refusal(api_version: int, request: ProduceRequest) -> KafkaError | None:
    """What is wrong with the request as a whole, and so the answer to each of its partitions."""
    if api_version < _BATCHES_FROM:
        return KafkaError(ErrorCode.UNSUPPORTED_VERSION)
    if request.acks not in (-1, 0, 1):
        return KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _put_off_what_follows(node: Node, api_version: int, topic: TopicProduceData, data: PartitionProduceData) -> None:
    """Where this node has a replica, and so may get to know that it leads before the producer's next batch comes."""
    if isinstance(data.records, memoryview):
        with suppress(KafkaError):
            _replica(node, api_version, topic, data.index).refuse_as_follower(data.records)


def _replica(node: Node, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    if api_version >= _TOPIC_IDS_FROM:
        return node.partitions.replica_by_id(topic.topic_id, index)
    return node.partitions.replica(TopicName(topic.name), PartitionIndex(index))


def _partition(node: Node, api_version: int, topic: TopicProduceData, index: int) -> Partition:
    partition = _replica(node, api_version, topic, index)
    if partition.leading is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if partition.identity.topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients cannot write to internal topics.")
    return partition


def _checked(
    api_version: int, partition: Partition, data: PartitionProduceData
) -> tuple[memoryview, LocatedBatches | None]:
    """The batch, proven to be one that may be stored as it is, and where it has been read, what was found."""
    records, settings = data.records, partition.settings
    if not isinstance(records, memoryview) or not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "The request has no record batch for this partition.")
    if settings.takes_any_batch:
        return records, validate_produced(records, produce_version=api_version)
    if settings.is_being_restored:
        return check_restored(settings, records, api_version), None
    validate_produced(records, produce_version=api_version)
    if settings.log.compacts:
        check_keys(records)
    return records if settings.codec is None else recompress(records, settings.codec), None


async def _respond_later(
    node: Node,
    api_version: int,
    request: ProduceRequest,
    written: _Written,
    pending: PendingProduce | None,
    *,
    throttle_time_ms: int,
) -> ProduceResponse:
    answers = written.answers
    errors = await refuted(node.metadata, written.doubted)
    if pending is not None:
        errors |= await pending.future
    if errors:
        topics = [topic for topic in request.topic_data for _ in topic.partition_data]
        for position, error in errors.items():
            index = answers[position].index
            answers[position] = _refused(node, api_version, topics[position], index, error)
    return _response(node, request, answers, throttle_time_ms)


def _response(
    node: Node, request: ProduceRequest, answers: list[PartitionProduceResponse], throttle_time_ms: int
) -> ProduceResponse:
    remaining = iter(answers)
    where: Sequence[NodeEndpoint] = ()
    for answer in answers:
        if answer.current_leader is not _NO_HINT:
            leaders = [other.current_leader.leader_id for other in answers if other.current_leader is not _NO_HINT]
            where = endpoints(node.metadata.image, leaders, NodeEndpoint)
            break
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


def _accepted(index: int, info: AppendInfo) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _refused(
    node: Node, api_version: int, topic: TopicProduceData, index: int, error: KafkaError
) -> PartitionProduceResponse:
    hint = _NO_HINT
    if api_version >= _HINTS_FROM:
        image = node.metadata.image
        name = topic.name or image.topic_names.get(TopicId(topic.topic_id), "")
        leader = leader_hint(image, name, index, error.code)
        if leader is not None:
            hint = LeaderIdAndEpoch(leader_id=leader.node_id, leader_epoch=leader.leader_epoch)
    return PartitionProduceResponse(
        index=index, error_code=error.code, base_offset=-1, error_message=error.message, current_leader=hint
    )


API = Api(request=ProduceRequest, min_version=0, max_version=13, handle=handle, is_hot=True)
