"""What classic consumers put into JoinGroup and get from SyncGroup: their subscription, and their assignment.

The bytes are ``ConsumerProtocolSubscription`` and ``ConsumerProtocolAssignment``, which name topics, not topic ids.
"""

import struct
from collections.abc import Iterable, Sequence

import msgspec

from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.consumer.topics import AssignedPartition, ClusterTopics, Partitions, by_topic
from quorate.kernel.ids import PartitionIndex, TopicName
from quorate.protocol.codec import decode_versioned, encode_versioned
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from quorate.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"


class MalformedProtocol(ValueError):
    """The bytes are not what consumers send, or hold what only their own assignor understands."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    topics: frozenset[TopicName]
    owned: Partitions
    rack_id: str | None


def read_subscription(metadata: bytes, topics: ClusterTopics) -> Subscription:
    try:
        decoded = decode_versioned(ConsumerProtocolSubscription, metadata)
    except ProtocolError as error:
        raise MalformedProtocol(str(error)) from error
    return Subscription(
        topics=frozenset(TopicName(topic) for topic in decoded.topics),
        owned=_partitions(((each.topic, each.partitions) for each in decoded.owned_partitions), topics),
        rack_id=decoded.rack_id,
    )


def read_assignment(assignment: bytes, topics: ClusterTopics) -> Partitions:
    """Partitions of topics that are gone are passed over."""
    if not assignment:
        return frozenset()
    try:
        decoded = decode_versioned(ConsumerProtocolAssignment, assignment)
    except ProtocolError as error:
        raise MalformedProtocol(str(error)) from error
    if decoded.user_data:
        raise MalformedProtocol("the assignment holds data of a custom assignor, which would be lost")
    return _partitions(((each.topic, each.partitions) for each in decoded.assigned_partitions), topics)


def _partitions(named: Iterable[tuple[str, Sequence[int]]], topics: ClusterTopics) -> Partitions:
    found: set[AssignedPartition] = set()
    for name, indexes in named:
        shape = topics.shape(TopicName(name))
        if shape is not None:
            found.update(AssignedPartition(shape.topic_id, PartitionIndex(index)) for index in indexes)
    return frozenset(found)


def write_assignment(partitions: Partitions, protocols: tuple[GroupProtocol, ...], topics: ClusterTopics) -> bytes:
    """In the version in which the member wrote its subscription."""
    version = int.from_bytes(protocols[0].metadata[:2], signed=True) if protocols else 0
    named = [(topics.name_of(topic_id), indexes) for topic_id, indexes in by_topic(partitions)]
    assigned = [TopicPartition(topic=name, partitions=indexes) for name, indexes in named if name is not None]
    return encode_versioned(
        ConsumerProtocolAssignment(assigned_partitions=assigned),
        max(0, min(version, ConsumerProtocolAssignment.MAX_VERSION)),
    )


def subscribed_topics(metadata: bytes) -> frozenset[TopicName]:
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or count < 0 or count > len(metadata):
            raise MalformedProtocol(f"version {version}, {count} topics in {len(metadata)} bytes")
        topics: set[TopicName] = set()
        position = 6
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            name = metadata[position + 2 : position + 2 + length]
            if length < 0 or len(name) != length:
                raise MalformedProtocol(f"topic name of {length} bytes at {position}")
            topics.add(TopicName(name.decode()))
            position += 2 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedProtocol(str(error)) from error
    return frozenset(topics)
