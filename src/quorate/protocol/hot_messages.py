"""Produce and Fetch as nearly all of them are: a request is read, and an answer written, in one native call.

A request with one batch for one partition, or a fetch of one partition or of what a session knows already, without
tagged fields; an answer that is about one partition and tells of no error. All others are for ``frames`` and ``codec``,
which are the twins: they read and write these just the same, and they alone say what is wrong with a frame.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from quorate.kernel.native import native
from quorate.kernel.ports import Buffer, FileRegion
from quorate.protocol.apis import ApiKey
from quorate.protocol.frames import RequestHeader, encode_response
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from quorate.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from quorate.protocol.primitives import read_uuid
from quorate.protocol.schema import Response

_read: Final = None if native is None else native.read_request
_write_produced: Final = None if native is None else native.encode_produced
_write_fetched: Final = None if native is None else native.encode_fetched
_TOPIC_IDS_FROM: Final = 13
#: Behind the records: nothing more about the partition, the topic and the whole.
_TAIL: Final = bytes(3)
#: The defaults themselves, as handlers leave them where there is nothing to say.
_PRODUCED: Final = PartitionProduceResponse()
_FETCHED: Final = PartitionData()
_PRODUCE: Final = int(ApiKey.PRODUCE)

HotRequest = ProduceRequest | FetchRequest


def read_hot_request(frame: memoryview) -> tuple[RequestHeader, HotRequest] | None:
    """None where the frame is for the twins. Records are views of it."""
    found = None if _read is None else _read(frame)
    if found is None:
        return None
    header = RequestHeader(
        api_key=found[0],
        api_version=found[1],
        correlation_id=found[2],
        client_id=found[3],
        body_position=found[4],
        is_known=True,
    )
    return header, _produce_request(frame, found) if found[0] == _PRODUCE else _fetch_request(found)


def _produce_request(frame: memoryview, found: tuple[Any, ...]) -> ProduceRequest:
    _, _, _, _, _, transactional_id, acks, timeout_ms, topic, index, start, end = found
    data = (PartitionProduceData(index=index, records=None if end < 0 else frame[start:end]),)
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(
            TopicProduceData(name=topic, partition_data=data)
            if type(topic) is str
            else TopicProduceData(topic_id=read_uuid(topic), partition_data=data),
        ),
    )


def _fetch_request(found: tuple[Any, ...]) -> FetchRequest:
    _, _, _, _, _, replica, wait, least, most, isolation, session, epoch, partition, rack = found
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=() if partition is None else (_fetch_topic(partition),),
        rack_id=rack or "",
    )


def _fetch_topic(found: tuple[Any, ...]) -> FetchTopic:
    topic, partition, leader_epoch, fetch_offset, last_fetched_epoch, log_start_offset, max_bytes = found
    partitions = (
        FetchPartition(
            partition=partition,
            current_leader_epoch=leader_epoch,
            fetch_offset=fetch_offset,
            last_fetched_epoch=last_fetched_epoch,
            log_start_offset=log_start_offset,
            partition_max_bytes=max_bytes,
        ),
    )
    if type(topic) is str:
        return FetchTopic(topic=topic, partitions=partitions)
    return FetchTopic(topic_id=read_uuid(topic), partitions=partitions)


def encode_hot_response(correlation_id: int, response: Response, version: int) -> Sequence[Buffer | FileRegion]:
    """A whole response frame, size included, as buffers for one vectored write."""
    encode = HOT_ENCODERS.get(type(response))
    encoded = None if encode is None else encode(correlation_id, response, version)
    return encode_response(correlation_id, response, version) if encoded is None else encoded


def _encode_produced(correlation_id: int, response: ProduceResponse, version: int) -> Sequence[Buffer] | None:
    if _write_produced is None or len(response.responses) != 1 or response.node_endpoints:
        return None
    topic = response.responses[0]
    if len(topic.partition_responses) != 1:
        return None
    answer = topic.partition_responses[0]
    if (
        answer.error_code
        or answer.record_errors
        or answer.error_message is not None
        or answer.current_leader is not _PRODUCED.current_leader
    ):
        return None
    frame = _write_produced(
        correlation_id,
        version,
        topic.name if version < _TOPIC_IDS_FROM else topic.topic_id.bytes,
        response.throttle_time_ms,
        answer.index,
        answer.base_offset,
        answer.log_append_time_ms,
        answer.log_start_offset,
    )
    return None if frame is None else [frame]


def _encode_fetched(correlation_id: int, response: FetchResponse, version: int) -> Sequence[Buffer | FileRegion] | None:
    if _write_fetched is None or len(response.responses) != 1 or response.error_code or response.node_endpoints:
        return None
    topic = response.responses[0]
    if len(topic.partitions) != 1:
        return None
    data = topic.partitions[0]
    records = data.records
    if not isinstance(records, bytes | FileRegion) or data.aborted_transactions or not _is_plain(data):
        return None
    head = _write_fetched(
        correlation_id,
        version,
        topic.topic if version < _TOPIC_IDS_FROM else topic.topic_id.bytes,
        response.throttle_time_ms,
        data.partition_index,
        response.session_id,
        data.high_watermark,
        data.last_stable_offset,
        data.log_start_offset,
        len(records),
        data.aborted_transactions is not None,
    )
    if head is None:
        return None
    tail = _TAIL if version >= FetchResponse.FLEXIBLE_FROM else b""
    return [head, records, tail] if len(records) else [head + tail]


def _is_plain(data: PartitionData) -> bool:
    """Whether there is nothing unusual to tell of the partition."""
    return (
        not data.error_code
        and data.preferred_read_replica == _FETCHED.preferred_read_replica
        and data.diverging_epoch is _FETCHED.diverging_epoch
        and data.current_leader is _FETCHED.current_leader
        and data.snapshot_id is _FETCHED.snapshot_id
    )


#: None of them gives an answer that is for the twin.
HOT_ENCODERS: Final[dict[type[Response], Callable[[int, Any, int], Sequence[Buffer | FileRegion] | None]]] = {
    ProduceResponse: _encode_produced,
    FetchResponse: _encode_fetched,
}
