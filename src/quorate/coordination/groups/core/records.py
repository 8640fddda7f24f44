"""What the coordinator keeps in ``__consumer_offsets``: committed offsets and group metadata.

A record is a key and a value; a record without a value is a tombstone. ``record_codec`` turns them into Kafka's bytes.
"""

import msgspec

from quorate.coordination.groups.core.consumer.records import ConsumerGroupRecord
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, TopicPartition


class OffsetKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    topic_partition: TopicPartition


class CommittedOffset(msgspec.Struct, frozen=True, kw_only=True):
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    commit_timestamp_ms: int
    # Only where a client before OffsetCommit 5 asked for a retention of its own.
    expire_timestamp_ms: int | None = None


class GroupKey(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class StoredMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes  # The member's metadata for the protocol that the group chose.
    assignment: bytes


class StoredGroup(msgspec.Struct, frozen=True, kw_only=True):
    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: MemberId | None
    state_timestamp_ms: int
    members: tuple[StoredMember, ...]


class OffsetRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: OffsetKey
    value: CommittedOffset | None


class GroupRecord(msgspec.Struct, frozen=True, kw_only=True):
    key: GroupKey
    value: StoredGroup | None


CoordinatorRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord


def offset_record(group_id: GroupId, topic_partition: TopicPartition, value: CommittedOffset | None) -> OffsetRecord:
    return OffsetRecord(key=OffsetKey(group_id=group_id, topic_partition=topic_partition), value=value)


def group_record(group_id: GroupId, value: StoredGroup | None) -> GroupRecord:
    return GroupRecord(key=GroupKey(group_id=group_id), value=value)
