"""Produce, versions 0 to 13.

Versions 0 to 2 are there because librdkafka stops compressing without them; every partition of such a request is
answered with UNSUPPORTED_VERSION.
Gaps: transactional ids are refused until there are transactions; quotas are not applied.
"""

import asyncio
from collections.abc import Callable

import msgspec

from quorate.broker.api import Api, HandlerResult, RequestContext
from quorate.broker.node import Node
from quorate.broker.partition import Partition
from quorate.broker.pending_produce import PendingProduce
from quorate.broker.recompression import recompress
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, TopicName
from quorate.metadata.topic_names import INTERNAL_TOPICS
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from quorate.records.validation import check_keys, validate_produced
from quorate.storage.appending import AppendInfo

_BATCHES_FROM = 3
_TOPIC_IDS_FROM = 13


class _Written(msgspec.Struct, frozen=True):
    """What became of one partition's data: appended, or refused."""

    index: int
    partition: Partition | None
    info: AppendInfo | None
    error: KafkaError | None

    @property
    def end_offset(self) -> Offset:
        assert self.info is not None
        return Offset(self.info.last_offset + 1)


def handle(node: Node, context: RequestContext, request: ProduceRequest) -> HandlerResult:
    written = [
        [_write(node, context, request, topic, data) for data in topic.partition_data] for topic in request.topic_data
    ]
    if request.acks == 0:
        return None
    if request.acks == -1:
        pending = _wait_for_commit(node.loop, request.timeout_ms, written)
        if pending is not None:
            return _respond_later(request, written, pending)
    return _response(request, written, lambda _: None)


def _write(
    node: Node, context: RequestContext, request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData
) -> _Written:
    try:
        if context.api_version < _BATCHES_FROM:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
        if request.acks not in (-1, 0, 1):
            raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
        if request.transactional_id is not None:
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactions are not supported yet.")
        if context.api_version >= _TOPIC_IDS_FROM:
            partition = node.partitions.led_by_id(topic.topic_id, data.index)
        else:
            partition = node.partitions.led(TopicName(topic.name), PartitionIndex(data.index))
        if partition.identity.topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "Clients cannot write to internal topics.")
        info = partition.append(_checked(context, partition, data), node.clock.now_ms())
    except KafkaError as error:
        return _Written(data.index, None, None, error)
    return _Written(data.index, partition, info, None)


def _checked(context: RequestContext, partition: Partition, data: PartitionProduceData) -> memoryview:
    """The batch, proven to be one that may be stored as it is."""
    if not isinstance(data.records, memoryview) or not data.records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "The request has no record batch for this partition.")
    validate_produced(data.records, produce_version=context.api_version)
    if partition.log.config.compacts:
        check_keys(data.records)
    codec = partition.settings.codec
    return data.records if codec is None else recompress(data.records, codec)


def _wait_for_commit(
    loop: asyncio.AbstractEventLoop, timeout_ms: int, written: list[list[_Written]]
) -> PendingProduce | None:
    """Something to wait for, or None where all is committed already."""
    uncommitted = [
        (position, entry)
        for position, entry in enumerate(_flat(written))
        if entry.partition is not None and entry.partition.high_watermark < entry.end_offset
    ]
    if not uncommitted:
        return None
    pending = PendingProduce(loop, timeout_ms)
    for position, entry in uncommitted:
        assert entry.partition is not None
        pending.add(position, entry.partition, entry.end_offset)
    pending.seal()
    return pending


async def _respond_later(
    request: ProduceRequest, written: list[list[_Written]], pending: PendingProduce
) -> ProduceResponse:
    errors = await pending.future
    return _response(request, written, errors.get)


def _response(
    request: ProduceRequest,
    written: list[list[_Written]],
    commit_error: Callable[[int], KafkaError | None],
) -> ProduceResponse:
    position = 0
    responses = []
    for topic, entries in zip(request.topic_data, written, strict=True):
        partitions = []
        for entry in entries:
            partitions.append(_partition_response(entry, entry.error or commit_error(position)))
            position += 1
        responses.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=partitions))
    return ProduceResponse(responses=responses)


def _partition_response(entry: _Written, error: KafkaError | None) -> PartitionProduceResponse:
    if error is not None:
        return PartitionProduceResponse(
            index=entry.index, error_code=error.code, base_offset=-1, error_message=error.message
        )
    info = entry.info
    assert info is not None
    return PartitionProduceResponse(
        index=entry.index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )


def _flat(written: list[list[_Written]]) -> list[_Written]:
    return [entry for entries in written for entry in entries]


API = Api(request=ProduceRequest, min_version=0, max_version=13, handle=handle)
