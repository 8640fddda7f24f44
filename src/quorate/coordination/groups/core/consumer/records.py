"""What the coordinator keeps of a consumer group: its epoch, members, target and current assignments.

One value for each of Kafka's record types 3 to 8 and 16. A record without a value is a tombstone.
"""

from enum import IntEnum

import msgspec

from quorate.coordination.groups.core.classic_protocol import GroupProtocol
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, Partitions
from quorate.kernel.ids import GroupId, MemberId, TopicName


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
