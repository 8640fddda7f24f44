"""The records of consumer groups as Kafka's bytes and back."""

from collections.abc import Iterable
from typing import assert_never

from quorate.coordination.groups.core.consumer import wire_records as wire
from quorate.coordination.groups.core.consumer.partitions import AssignedPartition, Partitions, by_topic
from quorate.coordination.groups.core.consumer.records import (
    ClassicSupport,
    ConsumerGroupKey,
    ConsumerGroupRecord,
    ConsumerMember,
    CurrentAssignment,
    CurrentAssignmentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberKey,
    MemberRecord,
    MemberState,
    PatternKey,
    PatternRecord,
    ResolvedPattern,
    TargetAssignment,
    TargetAssignmentRecord,
    TargetEpoch,
    TargetEpochRecord,
)
from quorate.coordination.groups.core.group_protocol import GroupProtocol
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.protocol.codec import decode, decode_versioned, encode, encode_versioned

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
            return _key(_GROUP_EPOCH, wire.GroupOnlyKey(group_id=key.group_id))
        case TargetEpochRecord(key=key):
            return _key(_TARGET_EPOCH, wire.GroupOnlyKey(group_id=key.group_id))
        case PatternRecord(key=pattern_key):
            return _key(_PATTERN, wire.GroupAndNameKey(group_id=pattern_key.group_id, name=pattern_key.pattern))
        case MemberRecord(key=member_key):
            key_type = _MEMBER
        case TargetAssignmentRecord(key=member_key):
            key_type = _TARGET_ASSIGNMENT
        case CurrentAssignmentRecord(key=member_key):
            key_type = _CURRENT_ASSIGNMENT
        case _:
            assert_never(record)
    return _key(key_type, wire.GroupAndNameKey(group_id=member_key.group_id, name=member_key.member_id))


def _key(key_type: int, key: wire.RecordKey) -> bytes:
    return b"".join([key_type.to_bytes(2), *encode(key, 0)])


def encode_value(record: ConsumerGroupRecord) -> bytes | None:
    if record.value is None:
        return None
    return encode_versioned(_to_wire(record.value), _VALUE_VERSION)


def _to_wire(
    value: GroupEpoch | ConsumerMember | TargetEpoch | TargetAssignment | CurrentAssignment | ResolvedPattern,
) -> wire.RecordValue:
    match value:
        case GroupEpoch(epoch=epoch, metadata_hash=metadata_hash):
            return wire.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
        case ConsumerMember():
            return _member_to_wire(value)
        case TargetEpoch(epoch=epoch, timestamp_ms=timestamp_ms):
            return wire.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=epoch, assignment_timestamp=timestamp_ms
            )
        case TargetAssignment(partitions=partitions):
            return wire.ConsumerGroupTargetAssignmentMemberValue(
                topic_partitions=[
                    wire.TargetTopicPartitions(topic_id=topic_id, partitions=indexes)
                    for topic_id, indexes in by_topic(partitions)
                ]
            )
        case CurrentAssignment():
            return wire.ConsumerGroupCurrentMemberAssignmentValue(
                member_epoch=value.member_epoch,
                previous_member_epoch=value.previous_member_epoch,
                state=value.state,
                assigned_partitions=_current_to_wire(value.assigned),
                partitions_pending_revocation=_current_to_wire(value.pending_revocation),
            )
        case ResolvedPattern():
            return wire.ConsumerGroupRegularExpressionValue(
                topics=sorted(value.topics), version=value.version, timestamp=value.timestamp_ms
            )
        case _:
            assert_never(value)


def _member_to_wire(member: ConsumerMember) -> wire.ConsumerGroupMemberMetadataValue:
    classic = None
    if member.classic is not None:
        classic = wire.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                wire.ClassicProtocol(name=protocol.name, metadata=protocol.metadata)
                for protocol in member.classic.protocols
            ],
        )
    return wire.ConsumerGroupMemberMetadataValue(
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


def _current_to_wire(partitions: Partitions) -> list[wire.CurrentTopicPartitions]:
    return [
        wire.CurrentTopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)
    ]


def decode_consumer_record(key_type: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    """The record of one of ``KEY_TYPES``; raises ``ProtocolError`` where the bytes are none."""
    if key_type in (_GROUP_EPOCH, _TARGET_EPOCH):
        group_key = ConsumerGroupKey(group_id=GroupId(decode(wire.GroupOnlyKey, key, 0, 2).group_id))
        if key_type == _GROUP_EPOCH:
            return GroupEpochRecord(key=group_key, value=None if value is None else _decode_epoch(value))
        return TargetEpochRecord(key=group_key, value=None if value is None else _decode_target_epoch(value))
    named = decode(wire.GroupAndNameKey, key, 0, 2)
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
    decoded = decode_versioned(wire.ConsumerGroupMetadataValue, value)
    return GroupEpoch(epoch=decoded.epoch, metadata_hash=decoded.metadata_hash)


def _decode_target_epoch(value: bytes) -> TargetEpoch:
    decoded = decode_versioned(wire.ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetEpoch(epoch=decoded.assignment_epoch, timestamp_ms=decoded.assignment_timestamp)


def _decode_pattern(value: bytes) -> ResolvedPattern:
    decoded = decode_versioned(wire.ConsumerGroupRegularExpressionValue, value)
    topics = frozenset(TopicName(topic) for topic in decoded.topics)
    return ResolvedPattern(topics=topics, version=decoded.version, timestamp_ms=decoded.timestamp)


def _decode_member(value: bytes) -> ConsumerMember:
    decoded = decode_versioned(wire.ConsumerGroupMemberMetadataValue, value)
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


def _decode_classic(classic: wire.ClassicMemberMetadata) -> ClassicSupport:
    return ClassicSupport(
        session_timeout_ms=classic.session_timeout_ms,
        protocols=tuple(
            GroupProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in classic.supported_protocols
        ),
    )


def _decode_target(value: bytes) -> TargetAssignment:
    decoded = decode_versioned(wire.ConsumerGroupTargetAssignmentMemberValue, value)
    return TargetAssignment(partitions=_partitions(decoded.topic_partitions))


def _decode_current(value: bytes) -> CurrentAssignment:
    decoded = decode_versioned(wire.ConsumerGroupCurrentMemberAssignmentValue, value)
    return CurrentAssignment(
        member_epoch=decoded.member_epoch,
        previous_member_epoch=decoded.previous_member_epoch,
        state=_STATES.get(decoded.state, MemberState.UNKNOWN),
        assigned=_partitions(decoded.assigned_partitions),
        pending_revocation=_partitions(decoded.partitions_pending_revocation),
    )


def _partitions(topics: Iterable[wire.TargetTopicPartitions | wire.CurrentTopicPartitions]) -> Partitions:
    return frozenset(
        AssignedPartition(TopicId(topic.topic_id), PartitionIndex(index))
        for topic in topics
        for index in topic.partitions
    )
