"""Answers to Produce and Fetch that are about one partition and tell of no error: written in one native call.

All others are for ``frames.encode_response``, which is the twin: it writes these just the same, and it alone says what
is wrong with an answer.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from quorate.kernel.native import native
from quorate.kernel.ports import Buffer, FileRegion
from quorate.protocol.frames import encode_response
from quorate.protocol.messages.fetch import FetchResponse, PartitionData
from quorate.protocol.messages.produce import PartitionProduceResponse, ProduceResponse
from quorate.protocol.schema import Response

_write_produced: Final = None if native is None else native.encode_produced
_write_fetched: Final = None if native is None else native.encode_fetched
_TOPIC_IDS_FROM: Final = 13
#: Behind the records: nothing more about the partition, the topic and the whole.
_TAIL: Final = bytes(3)
#: The defaults themselves, as handlers leave them where there is nothing to say.
_PRODUCED: Final = PartitionProduceResponse()
_FETCHED: Final = PartitionData()


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
