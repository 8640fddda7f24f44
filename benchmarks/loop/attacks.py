"""The requests that once stopped a node, each as the bytes of one frame. Pure.

Built with the broker's own codecs: what counts is what the node does with them.
"""

import struct
import zlib
from collections.abc import Sequence

from cramjam import zstd
from crc32c import crc32c

from quorate.protocol.frames import encode_request
from quorate.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from quorate.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from quorate.protocol.messages.describe_groups import DescribeGroupsRequest
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest
from quorate.protocol.messages.init_producer_id import InitProducerIdRequest
from quorate.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from quorate.protocol.messages.list_transactions import ListTransactionsRequest
from quorate.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from quorate.protocol.schema import Request
from quorate.records.record import encode_varint

_GZIP, _ZSTD = 1, 4
_NOW_MS = 1_700_000_000_000
_LAST_MS = 1
_TRANSACTIONAL_ID = "a" * 60 + "!"


def frame(request: Request, version: int) -> bytes:
    return b"".join(bytes(part) for part in encode_request(1, "attacker", request, version))


def transaction_coordinator() -> bytes:
    """Makes the topic of the transactions, where there is none yet."""
    return frame(FindCoordinatorRequest(key_type=1, key=_TRANSACTIONAL_ID), 3)


def transactional_id() -> bytes:
    """Makes an id that the pattern of ``list_transactions`` nearly matches."""
    return frame(InitProducerIdRequest(transactional_id=_TRANSACTIONAL_ID, transaction_timeout_ms=60_000), 4)


def list_transactions() -> bytes:
    return frame(ListTransactionsRequest(transactional_id_pattern="(a+)+"), 2)


def consumer_group_heartbeat() -> bytes:
    return frame(
        ConsumerGroupHeartbeatRequest(
            group_id="attacked",
            member_id="attacker-1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_regex="((.?){1000}){9}x",
            topic_partitions=(),
        ),
        1,
    )


def describe_groups(size_bytes: int) -> bytes:
    """A group id that is empty takes two bytes."""
    return frame(DescribeGroupsRequest(groups=[""] * (size_bytes // 2)), 0)


def find_coordinator(keys: int) -> bytes:
    return frame(FindCoordinatorRequest(key_type=0, coordinator_keys=[f"group-{key}" for key in range(keys)]), 4)


def many_records(topic: str, count: int) -> bytes:
    """One batch of tiny records with keys, which zstd makes small. Only the last is from the batch's latest time."""
    records = b"".join([*(_record(delta, 0) for delta in range(count - 1)), _record(count - 1, _LAST_MS)])
    return _produce(topic, _batch(bytes(zstd.compress(records, level=3)), count, _ZSTD))


def list_offsets(topic: str, times: int) -> bytes:
    """Looks for the last of many records as many times."""
    partitions = [ListOffsetsPartition(partition_index=0, timestamp=_NOW_MS + _LAST_MS) for _ in range(times)]
    return frame(ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=partitions)]), 7)


def bombs(topic: str) -> list[bytes]:
    """Batches of one record that are far larger once they are opened: 6 KB to 880 KB on the wire."""
    sizes = [(6 << 20, _GZIP), (200 << 20, _ZSTD), (880 << 20, _GZIP)]
    return [_produce(topic, _batch(_zeros(size, codec), 1, codec)) for size, codec in sizes]


def announced_frame_start() -> tuple[bytes, ...]:
    """A frame of 100 MB of which one byte comes, in a read of its own: only then is there room made for the frame."""
    return struct.pack(">i", 100_000_000), b"\0"


def reassignment(topic: str, assignments: Sequence[Sequence[int]]) -> bytes:
    partitions = [
        ReassignablePartition(partition_index=index, replicas=nodes) for index, nodes in enumerate(assignments)
    ]
    topics = [ReassignableTopic(name=topic, partitions=partitions)]
    return frame(AlterPartitionReassignmentsRequest(timeout_ms=60_000, topics=topics), 0)


def _produce(topic: str, batch: bytes) -> bytes:
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])]
    return frame(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=data), 9)


def _record(delta: int, later_ms: int) -> bytes:
    body = (
        b"\0"
        + encode_varint(later_ms)
        + encode_varint(delta)
        + encode_varint(1)
        + b"k"
        + encode_varint(0)
        + encode_varint(0)
    )
    return encode_varint(len(body)) + body


def _zeros(size: int, codec: int) -> bytes:
    record = b"\0\0\0" + encode_varint(1) + b"k" + encode_varint(size)
    head = encode_varint(len(record) + size + 1) + record
    if codec == _ZSTD:
        return bytes(zstd.compress(head + bytes(size + 1), level=19))
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [head, *(bytes(1 << 20) for _ in range(size >> 20)), b"\0"]
    return b"".join([*map(compressor.compress, pieces), compressor.flush()])


def _batch(payload: bytes, count: int, codec: int) -> bytes:
    latest_ms = _NOW_MS + _LAST_MS
    covered = struct.pack(">hiqqqhii", codec, count - 1, _NOW_MS, latest_ms, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered
