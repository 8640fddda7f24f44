"""What clients ask of the coordinator and what they are told, free of wire versions.

The handlers translate each version of a message to these and back. A command names its group, so that it can be
sent to the shard that holds the group.
"""

from collections.abc import Mapping
from uuid import UUID

import msgspec

from quorate.coordination.core.effects import TransactionalProducer
from quorate.coordination.groups.core.classic_protocol import GroupProtocol, GroupState
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupCommand, ConsumerGroupResult
from quorate.coordination.groups.core.consumer.group import ConsumerGroupState
from quorate.coordination.groups.core.records import CommittedOffset
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, TopicName, TopicPartition
from quorate.records.control import TransactionEnd

NO_MEMBER_ID = MemberId("")
NO_GENERATION = -1
_MOST_OF_A_NAME = 255


class JoinGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[GroupProtocol, ...]  # In the member's order of preference.
    require_known_member_id: bool  # KIP-394: from JoinGroup 4 on a member joins with an id it was given.
    supports_skip_assignment: bool  # KIP-814: from JoinGroup 9 on a leader can be told not to assign.

    def own_member_id(self, new_id: UUID) -> MemberId:
        """The id of a member that comes without one: it begins with the member's name, as far as there is room."""
        name = self.group_instance_id or self.client_id
        return MemberId(f"{name[:_MOST_OF_A_NAME]}-{new_id}")


class JoinedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    metadata: bytes


class JoinGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = NO_MEMBER_ID
    skip_assignment: bool = False
    member_id: MemberId
    members: tuple[JoinedMember, ...] = ()  # For the leader only.


class SyncGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    generation: int
    member_id: MemberId
    group_instance_id: str | None
    protocol_type: str | None  # None before SyncGroup 5, which does not say.
    protocol_name: str | None
    assignments: Mapping[MemberId, bytes]


class SyncGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


class GroupHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    generation: int
    member_id: MemberId
    group_instance_id: str | None


class GroupHeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE


class LeavingMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None


class LeaveGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    members: tuple[LeavingMember, ...]


class LeftMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    error: ErrorCode


class LeaveGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


class OffsetToCommit(msgspec.Struct, frozen=True, kw_only=True):
    topic_partition: TopicPartition
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str


class CommitOffsets(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    generation: int  # NO_GENERATION from consumers that assign partitions themselves, and from tools.
    member_id: MemberId
    group_instance_id: str | None
    offsets: tuple[OffsetToCommit, ...]
    supports_member_epochs: bool = True  # From OffsetCommit 9 on; members of consumer groups must use it.
    retention_time_ms: int | None  # Before OffsetCommit 5 a client could ask for one of its own.
    transaction: TransactionalProducer | None = None  # Set in TxnOffsetCommit.


class CommitOffsetsResult(msgspec.Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, ErrorCode]


class FetchOffsets(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    topic_partitions: tuple[TopicPartition, ...] | None  # None asks for all that the group has committed.
    # From members of consumer groups, and from version 9 on; others do not say who they are.
    member_id: MemberId | None = None
    member_epoch: int = NO_GENERATION
    # KIP-447: leave out offsets that an open transaction may still change.
    require_stable: bool = False


class FetchOffsetsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    offsets: Mapping[TopicPartition, CommittedOffset] = {}  # Only what is committed.
    unstable: frozenset[TopicPartition] = frozenset()  # Of those asked for; they are not among the offsets.


class DeleteOffsets(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    topic_partitions: tuple[TopicPartition, ...]


class DeleteOffsetsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    errors: Mapping[TopicPartition, ErrorCode] = {}


class DescribeGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class DescribedMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribeGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    group_id: GroupId
    state: GroupState = GroupState.DEAD
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListGroups(msgspec.Struct, frozen=True, kw_only=True):
    states: frozenset[str] = frozenset()  # Lower case; empty means all.
    types: frozenset[str] = frozenset()  # Lower case; empty means all.


class ListedGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId
    protocol_type: str
    state: GroupState | ConsumerGroupState
    group_type: str = "classic"


class ListGroupsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


class DeleteGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class DeleteGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE


class SettlePendingOffsets(msgspec.Struct, frozen=True, kw_only=True):
    """The coordinator of a transaction has decided: its offsets in the shard's partition are committed or dropped."""

    end: TransactionEnd


class SettlePendingOffsetsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE


class ForgetTopics(msgspec.Struct, frozen=True, kw_only=True):
    """The topics were deleted from the cluster: what groups had committed for them means nothing any more."""

    topics: frozenset[TopicName]


class ForgetTopicsResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE


MembershipCommand = JoinGroup | SyncGroup | GroupHeartbeat | LeaveGroup
OffsetCommand = CommitOffsets | FetchOffsets | DeleteOffsets | ForgetTopics | SettlePendingOffsets
GroupQuery = DescribeGroup | ListGroups
Command = MembershipCommand | OffsetCommand | GroupQuery | DeleteGroup | ConsumerGroupCommand

Result = (
    JoinGroupResult
    | SyncGroupResult
    | GroupHeartbeatResult
    | LeaveGroupResult
    | CommitOffsetsResult
    | FetchOffsetsResult
    | DeleteOffsetsResult
    | DescribeGroupResult
    | ListGroupsResult
    | DeleteGroupResult
    | ForgetTopicsResult
    | SettlePendingOffsetsResult
    | ConsumerGroupResult
)
