"""What the cluster's benchmark asks beside Produce: who leads what, who leads the quorum, elect leaders. Pure.

By hand, as ``benchmarks.wire``: the same bytes for both systems, and no code of the one under measurement.
"""

import struct
from collections.abc import Sequence

import msgspec

from benchmarks.wire import (
    CREATE_TOPICS,
    CREATE_TOPICS_VERSION,
    TIMEOUT_MS,
    compact_string,
    frame_head,
    read_uvarint,
    string,
    uvarint,
)

METADATA, ELECT_LEADERS, DESCRIBE_QUORUM = 3, 43, 55
METADATA_VERSION, ELECT_LEADERS_VERSION, DESCRIBE_QUORUM_VERSION = 12, 1, 2
METADATA_TOPIC = "__cluster_metadata"
_PREFERRED = 0


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    index: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def is_whole(self) -> bool:
        return self.leader >= 0 and len(self.isr) == len(self.replicas)

    @property
    def has_preferred_leader(self) -> bool:
        return self.leader == self.replicas[0]


class ClusterView(msgspec.Struct, frozen=True, kw_only=True):
    """One node's answer to Metadata. Topics that were answered with an error have no partitions."""

    addresses: dict[int, tuple[str, int]]
    topics: dict[str, tuple[PartitionView, ...]]


def metadata_request(topics: Sequence[str] | None) -> bytes:
    """For these topics, or for all."""
    if topics is None:
        body = b"\0"
    else:
        body = uvarint(len(topics) + 1) + b"".join(bytes(16) + compact_string(topic) + b"\0" for topic in topics)
    return frame_head(METADATA, METADATA_VERSION, body + b"\0\0\0")


def create_assigned_topic_request(topic: str, assignments: Sequence[Sequence[int]]) -> bytes:
    """A topic whose partitions have these replicas, the first of which is to lead."""
    body = struct.pack(">i", 1) + string(topic) + struct.pack(">ihi", -1, -1, len(assignments))
    for index, replicas in enumerate(assignments):
        body += struct.pack(f">ii{len(replicas)}i", index, len(replicas), *replicas)
    body += struct.pack(">iib", 0, TIMEOUT_MS, 0)  # No configs; timeout; not only to validate.
    return frame_head(CREATE_TOPICS, CREATE_TOPICS_VERSION, body, is_flexible=False)


def elect_preferred_leaders_request() -> bytes:
    body = struct.pack(">bii", _PREFERRED, -1, TIMEOUT_MS)
    return frame_head(ELECT_LEADERS, ELECT_LEADERS_VERSION, body, is_flexible=False)


def describe_quorum_request() -> bytes:
    body = b"\2" + compact_string(METADATA_TOPIC) + b"\2" + bytes(4) + b"\0\0\0"
    return frame_head(DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, body)


def quorum_leader(answer: bytes) -> int:
    """The id of the quorum's leader; below 0 where the node asked does not know it."""
    reader = _Reader(answer)
    reader.skip(4 + 1)  # Correlation id, tags.
    (error_code,) = reader.take(">h")
    if error_code:
        return -1
    reader.text()  # Error message.
    reader.length()
    reader.text()  # Topic.
    reader.length()
    _index, partition_error_code = reader.take(">ih")
    reader.text()  # Error message.
    (leader,) = reader.take(">i")
    return -1 if partition_error_code else leader


def parse_metadata(answer: bytes) -> ClusterView:
    reader = _Reader(answer)
    reader.skip(4 + 1 + 4)  # Correlation id, tags, throttle time.
    addresses = dict(reader.broker() for _ in range(reader.length()))
    reader.text()  # Cluster id.
    reader.skip(4)  # The controller: in Apache Kafka any broker, so of no use here.
    topics = dict(reader.topic() for _ in range(reader.length()))
    return ClusterView(addresses=addresses, topics=topics)


class _Reader:
    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self._position = 0

    def skip(self, size_bytes: int) -> None:
        self._position += size_bytes

    def take(self, format_text: str) -> tuple[int, ...]:
        values = struct.unpack_from(format_text, self._content, self._position)
        self._position += struct.calcsize(format_text)
        return values

    def length(self) -> int:
        length, self._position = read_uvarint(self._content, self._position)
        return max(0, length - 1)

    def text(self) -> str:
        length = self.length()
        self._position += length
        return str(self._content[self._position - length : self._position], "utf-8")

    def node_ids(self) -> tuple[int, ...]:
        return self.take(f">{self.length()}i")

    def broker(self) -> tuple[int, tuple[str, int]]:
        (node_id,) = self.take(">i")
        host = self.text()
        (port,) = self.take(">i")
        self.text()  # Rack.
        self.skip(1)
        return node_id, (host, port)

    def topic(self) -> tuple[str, tuple[PartitionView, ...]]:
        self.skip(2)  # Error code.
        name = self.text()
        self.skip(16 + 1)  # Topic id, whether it is internal.
        partitions = tuple(self.partition() for _ in range(self.length()))
        self.skip(4 + 1)  # Authorized operations, tags.
        return name, tuple(sorted(partitions, key=lambda each: each.index))

    def partition(self) -> PartitionView:
        _error_code, index, leader, _leader_epoch = self.take(">hiii")
        replicas, isr, _offline = self.node_ids(), self.node_ids(), self.node_ids()
        self.skip(1)
        return PartitionView(index=index, leader=leader, replicas=replicas, isr=isr)
