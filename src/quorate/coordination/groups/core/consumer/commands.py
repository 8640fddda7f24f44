"""What members and tools ask of a consumer group and what they are told, free of wire versions."""

import msgspec

from quorate.coordination.groups.core.consumer.group import ConsumerGroupState
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, Matches, Partitions
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId, TopicName

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
#: A static member goes away for a while; its partitions are kept for the next process with its instance id.
LEAVE_FOR_A_WHILE_EPOCH = -2


class ConsumerGroupHeartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that may be None are left out by a member that has nothing new to say about them."""

    group_id: GroupId
    member_id: MemberId
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int | None = None
    topics: frozenset[TopicName] | None = None
    pattern: str | None = None  # Empty where the member takes its pattern back.
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str
    client_host: str
    #: Of the group's patterns, where it depends on the sender what they match.
    matches: Matches | None = None
    chooses_member_id: bool = True  # From version 1 on; before, the coordinator gives an id to a member that has none.

    @property
    def is_complete(self) -> bool:
        """A member that joins, or that does not know what became of its last heartbeat, says everything."""
        has_subscription = self.topics is not None or self.pattern is not None
        return self.rebalance_timeout_ms is not None and has_subscription and self.owned is not None


class ConsumerGroupHeartbeatResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: MemberId | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Partitions | None = None  # None where the member knows it already.


class DescribeConsumerGroup(msgspec.Struct, frozen=True, kw_only=True):
    group_id: GroupId


class DescribedConsumerMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: MemberId
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topics: frozenset[TopicName]
    pattern: str | None
    assigned: Partitions = NO_PARTITIONS
    target: Partitions = NO_PARTITIONS
    is_classic: bool = False


class DescribeConsumerGroupResult(msgspec.Struct, frozen=True, kw_only=True):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    group_id: GroupId
    state: ConsumerGroupState = ConsumerGroupState.DEAD
    epoch: int = 0
    target_epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedConsumerMember, ...] = ()


ConsumerGroupCommand = ConsumerGroupHeartbeat | DescribeConsumerGroup
ConsumerGroupResult = ConsumerGroupHeartbeatResult | DescribeConsumerGroupResult
