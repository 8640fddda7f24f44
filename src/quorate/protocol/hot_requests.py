"""Produce and Fetch requests of the shape that nearly all of them have: header and body read in one native call.

One batch for one partition, or a fetch of one partition or of what a session knows already, without tagged fields. All
others are for ``frames`` and ``codec``, which are the twins: they read these just the same, and they alone say what is
wrong with a frame.
"""

from typing import Any, Final

from quorate.kernel.native import native
from quorate.protocol.apis import ApiKey
from quorate.protocol.frames import RequestHeader
from quorate.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.protocol.primitives import read_uuid

_read: Final = None if native is None else native.read_request
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
