"""What the coordinator keeps of a consumer group, and its bytes, exactly as Apache Kafka writes them.

That is its epoch, members, target and current assignments: one value for each of Kafka's record types 3 to 8 and 16. A
record without a value is a tombstone. The schemas are Kafka's, field by field. Keys open with the record type, values
with their version, which is 0 for all.
"""

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Annotated, ClassVar, assert_never

import msgspec

from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, AssignedPartition, Partitions, by_topic
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.protocol.codec import decode, decode_versioned, encode, encode_versioned
from quorate.protocol.schema import (
    NEVER_FLEXIBLE,
    NO_UUID,
    Bytes,
    Int8,
    Int32,
    Int64,
    Message,
    String,
    Tagged,
    Uuid,
    VersionedMessage,
)


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment; the values are those in Kafka's log."""

    STABLE = 0  # At the target of its epoch.
    UNREVOKED_PARTITIONS = 1  # Must give up partitions before it may go on.
    UNRELEASED_PARTITIONS = 2  # Waits for partitions that others have not given up yet.
    UNKNOWN = 127  # Written by a coordinator that knows more states than this one.


class ConsumerGroupKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class MemberKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    member_id: MemberId


class PatternKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    pattern: str


class GroupEpoch(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int  # Grows with every change that needs another target assignment.
    metadata_hash: int = 0  # Of the subscribed topics as they were at this epoch.


class ClassicSupport(msgspec.Struct, frozen=True, kw_only=True):
    """What a member that still speaks the classic protocol said of itself in JoinGroup."""

    session_timeout_ms: int
    protocols: tuple[GroupProtocol, ...]


class ConsumerMember(msgspec.Struct, frozen=True, kw_only=True):
    """What a member says of itself and what it subscribes to."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str
    client_host: str
    topics: frozenset[TopicName] = frozenset()
    pattern: str | None = None
    rebalance_timeout_ms: int
    server_assignor: str | None = None
    classic: ClassicSupport | None = None  # None for members that speak the consumer protocol.


class TargetEpoch(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int  # The group epoch that the target assignments were made for.
    timestamp_ms: int = 0


class TargetAssignment(msgspec.Struct, frozen=True, kw_only=True):
    partitions: Partitions = NO_PARTITIONS


class CurrentAssignment(msgspec.Struct, frozen=True, kw_only=True):
    """Where a member stands. It owns what is assigned and, until it says otherwise, what it must revoke."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def owned(self) -> Partitions:
        return self.assigned | self.pending_revocation


class ResolvedPattern(msgspec.Struct, frozen=True, kw_only=True):
    topics: frozenset[TopicName]
    version: int  # Of the cluster's metadata that it was resolved on.
    timestamp_ms: int


class GroupEpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: ConsumerGroupKey
    value: GroupEpoch | None


class MemberRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: MemberKey
    value: ConsumerMember | None


class TargetEpochRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: ConsumerGroupKey
    value: TargetEpoch | None


class TargetAssignmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: MemberKey
    value: TargetAssignment | None


class CurrentAssignmentRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: MemberKey
    value: CurrentAssignment | None


class PatternRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: PatternKey
    value: ResolvedPattern | None


ConsumerGroupRecord = (
    GroupEpochRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetAssignmentRecord
    | CurrentAssignmentRecord
    | PatternRecord
)


class RecordKey(VersionedMessage, frozen=True, kw_only=True, gc=False):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = NEVER_FLEXIBLE


class RecordValue(VersionedMessage, frozen=True, kw_only=True, gc=False):
    MIN_VERSION: ClassVar[int] = 0
    MAX_VERSION: ClassVar[int] = 0
    FLEXIBLE_FROM: ClassVar[int] = 0


class GroupOnlyKey(RecordKey, frozen=True, kw_only=True, gc=False):
    """Types 3 and 6."""

    group_id: String = ""


class GroupAndNameKey(RecordKey, frozen=True, kw_only=True, gc=False):
    """Types 5, 7 and 8, where the name is a member's id, and 16, where it is a regular expression."""

    group_id: String = ""
    name: String = ""


class ConsumerGroupMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    epoch: Int32 = 0
    metadata_hash: Annotated[Int64, Tagged(0)] = 0


class ClassicProtocol(Message, frozen=True, kw_only=True, gc=False):
    name: String = ""
    metadata: Bytes = b""


class ClassicMemberMetadata(Message, frozen=True, kw_only=True, gc=False):
    session_timeout_ms: Int32 = 0
    supported_protocols: Sequence[ClassicProtocol] = ()


class ConsumerGroupMemberMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    instance_id: String | None = None
    rack_id: String | None = None
    client_id: String = ""
    client_host: String = ""
    subscribed_topic_names: Sequence[String] = ()
    subscribed_topic_regex: String | None = None
    rebalance_timeout_ms: Int32 = -1
    server_assignor: String | None = None
    classic_member_metadata: Annotated[ClassicMemberMetadata | None, Tagged(0)] = None


class ConsumerGroupTargetAssignmentMetadataValue(RecordValue, frozen=True, kw_only=True, gc=False):
    assignment_epoch: Int32 = 0
    assignment_timestamp: Annotated[Int64, Tagged(0)] = 0


class TargetTopicPartitions(Message, frozen=True, kw_only=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()


class ConsumerGroupTargetAssignmentMemberValue(RecordValue, frozen=True, kw_only=True, gc=False):
    topic_partitions: Sequence[TargetTopicPartitions] = ()


class CurrentTopicPartitions(Message, frozen=True, kw_only=True, gc=False):
    topic_id: Uuid = NO_UUID
    partitions: Sequence[Int32] = ()
    assignment_epochs: Annotated[Sequence[Int32] | None, Tagged(0)] = None


class ConsumerGroupCurrentMemberAssignmentValue(RecordValue, frozen=True, kw_only=True, gc=False):
    member_epoch: Int32 = 0
    previous_member_epoch: Int32 = 0
    state: Int8 = 0
    assigned_partitions: Sequence[CurrentTopicPartitions] = ()
    partitions_pending_revocation: Sequence[CurrentTopicPartitions] = ()


class ConsumerGroupRegularExpressionValue(RecordValue, frozen=True, kw_only=True, gc=False):
    topics: Sequence[String] = ()
    version: Int64 = 0
    timestamp: Int64 = 0


_GROUP_EPOCH = 3
_MEMBER = 5
_TARGET_EPOCH = 6
_TARGET_ASSIGNMENT = 7
_CURRENT_ASSIGNMENT = 8
_PATTERN = 16
#: Type 4 held the partitions of subscribed topics until Kafka 4.1 put a hash of them into type 3; it is not read.
KEY_TYPES = frozenset((_GROUP_EPOCH, _MEMBER, _TARGET_EPOCH, _TARGET_ASSIGNMENT, _CURRENT_ASSIGNMENT, _PATTERN))
_VALUE_VERSION = 0
_STATES = {state.value: state for state in MemberState}


def encode_key(record: ConsumerGroupRecord) -> bytes:
    match record:
        case GroupEpochRecord(key=key):
            return _key(_GROUP_EPOCH, GroupOnlyKey(group_id=key.group_id))
        case TargetEpochRecord(key=key):
            return _key(_TARGET_EPOCH, GroupOnlyKey(group_id=key.group_id))
        case PatternRecord(key=pattern_key):
            return _key(_PATTERN, GroupAndNameKey(group_id=pattern_key.group_id, name=pattern_key.pattern))
        case MemberRecord(key=member_key):
            key_type = _MEMBER
        case TargetAssignmentRecord(key=member_key):
            key_type = _TARGET_ASSIGNMENT
        case CurrentAssignmentRecord(key=member_key):
            key_type = _CURRENT_ASSIGNMENT
        case _:
            assert_never(record)
    return _key(key_type, GroupAndNameKey(group_id=member_key.group_id, name=member_key.member_id))


def _key(key_type: int, key: RecordKey) -> bytes:
    return b"".join([key_type.to_bytes(2), *encode(key, 0)])


def encode_value(record: ConsumerGroupRecord) -> bytes | None:
    if record.value is None:
        return None
    return encode_versioned(_to_wire(record.value), _VALUE_VERSION)


def _to_wire(
    value: GroupEpoch | ConsumerMember | TargetEpoch | TargetAssignment | CurrentAssignment | ResolvedPattern,
) -> RecordValue:
    match value:
        case GroupEpoch(epoch=epoch, metadata_hash=metadata_hash):
            return ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case ConsumerMember():
            return _member_to_wire(value)
        case TargetEpoch(epoch=epoch, timestamp_ms=timestamp_ms):
            return ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
        case TargetAssignment(partitions=partitions):
            return ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    TargetTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(partitions)
                ]
            )
        case CurrentAssignment():
            return ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=value.state,
                assigned_partitions=_current_to_wire(value.assigned),
                partitions_pending_revocation=_current_to_wire(value.pending_revocation),
            )
        case ResolvedPattern():
            return ConsumerGroupRegularExpressionValue(
                topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
            )
        case _:
            assert_never(value)


def _member_to_wire(member: ConsumerMember) -> ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        classic = ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in member.classic.protocols
            ],
        )
    return ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topics),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )


def _current_to_wire(partitions: Partitions) -> list[CurrentTopicPartitions]:
    return [CurrentTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)]


def decode_consumer_record(key_type: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """The record of one of ``KEY_TYPES``; raises ``ProtocolError`` where the bytes are none."""
    if key_type in (_GROUP_EPOCH, _TARGET_EPOCH):
        group_key = ConsumerGroupKey(group_id=GroupId(decode(GroupOnlyKey, key, 0, 2).group_id))
        if key_type == _GROUP_EPOCH:
            return GroupEpochRecord(key=group_key, value=None if value is None else _decode_epoch(value))
        return TargetEpochRecord(key=group_key, value=None if value is None else _decode_target_epoch(value))
    named = decode(GroupAndNameKey, key, 0, 2)
    if key_type == _PATTERN:
        pattern_key = PatternKey(group_id=GroupId(named.group_id), pattern=named.name)
        return PatternRecord(key=pattern_key, value=None if value is None else _decode_pattern(value))
    member_key = MemberKey(group_id=GroupId(named.group_id), member_id=MemberId(named.name))
    if key_type == _MEMBER:
        return MemberRecord(key=member_key, value=None if value is None else _decode_member(value))
    if key_type == _TARGET_ASSIGNMENT:
        return TargetAssignmentRecord(key=member_key, value=None if value is None else _decode_target(value))
    return CurrentAssignmentRecord(key=member_key, value=None if value is None else _decode_current(value))


def _decode_epoch(value: bytes) -> GroupEpoch:
    decoded = decode_versioned(ConsumerGroupMetadataValue, value)
    return GroupEpoch(epoch=decoded.epoch, metadata_hash=decoded.metadata_hash)


def _decode_target_epoch(value: bytes) -> TargetEpoch:
    decoded = decode_versioned(ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetEpoch(epoch=decoded.assignment_epoch, timestamp_ms=decoded.assignment_timestamp)


def _decode_pattern(value: bytes) -> ResolvedPattern:
    decoded = decode_versioned(ConsumerGroupRegularExpressionValue, value)
    topics = frozenset(TopicName(topic) for topic in decoded.topics)
    return ResolvedPattern(topics=topics, version=decoded.version, timestamp_ms=decoded.timestamp)


def _decode_member(value: bytes) -> ConsumerMember:
    decoded = decode_versioned(ConsumerGroupMemberMetadataValue, value)
    classic = decoded.classic_member_metadata
    return ConsumerMember(
        instance_id=decoded.instance_id,
        rack_id=decoded.rack_id,
        client_id=decoded.client_id,
        client_host=decoded.client_host,
        topics=frozenset(TopicName(topic) for topic in decoded.subscribed_topic_names),
        pattern=decoded.subscribed_topic_regex,
        rebalance_timeout_ms=decoded.rebalance_timeout_ms,
        server_assignor=decoded.server_assignor,
        classic=None if classic is None else _decode_classic(classic),
    )


def _decode_classic(classic: ClassicMemberMetadata) -> ClassicSupport:
    return ClassicSupport(
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple(
            GroupProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in classic.supported_protocols
        ),
    )


def _decode_target(value: bytes) -> TargetAssignment:
    decoded = decode_versioned(ConsumerGroupTargetAssignmentMemberValue, value)
    return TargetAssignment(partitions=_partitions(decoded.topic_partitions))


def _decode_current(value: bytes) -> CurrentAssignment:
    decoded = decode_versioned(ConsumerGroupCurrentMemberAssignmentValue, value)
    return CurrentAssignment(
        member_epoch=decoded.member_epoch,
        previous_member_epoch=decoded.previous_member_epoch,
        state=_STATES.get(decoded.state, MemberState.UNKNOWN),
        assigned=_partitions(decoded.assigned_partitions),
        pending_revocation=_partitions(decoded.partitions_pending_revocation),
    )


def _partitions(topics: Iterable[TargetTopicPartitions | CurrentTopicPartitions]) -> Partitions:
    return frozenset(
        AssignedPartition(TopicId(topic.topic_id), PartitionIndex(index))
        for topic in topics
        for index in topic.partitions
    )
