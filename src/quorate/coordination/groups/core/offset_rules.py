"""Who may commit and delete a group's offsets, and which of them have outlived their retention."""

from collections.abc import Mapping

from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.commands import NO_MEMBER_ID, CommitOffsets
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer import offset_rules as consumer_rules
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.group_state import GroupState
from quorate.coordination.groups.core.records import CommittedOffset
from quorate.coordination.groups.core.subscription import CONSUMER_PROTOCOL_TYPE, InvalidSubscription, subscribed_topics
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import TopicName, TopicPartition


def commit_error(group: ClassicGroup | ConsumerGroup | None, command: CommitOffsets) -> ErrorCode:
    if command.transaction is not None and is_anonymous(command):
        return ErrorCode.NONE  # Before KIP-447 a producer could not say for which member it commits.
    if isinstance(group, ConsumerGroup):
        error = consumer_rules.commit_error(group, command)
        is_stale = error is ErrorCode.STALE_MEMBER_EPOCH and command.transaction is not None
        return ErrorCode.ILLEGAL_GENERATION if is_stale else error  # Producers do not know epochs of members.
    if group is None:
        # Nobody manages membership here; a generation can only stem from a group that is gone.
        return ErrorCode.NONE if command.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if command.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if is_anonymous(command):
        return ErrorCode.UNKNOWN_MEMBER_ID  # A tool or a simple consumer must not meddle with live members.
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and command.transaction is None:
        return ErrorCode.REBALANCE_IN_PROGRESS  # The member has no assignment yet that it could commit for.
    return ErrorCode.NONE


def is_anonymous(command: CommitOffsets) -> bool:
    return command.generation < 0 and command.member_id == NO_MEMBER_ID and command.group_instance_id is None


def delete_error(group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
    if group is None or isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP  # What the members of another protocol read is unknown.


def is_subscribed(group: ClassicGroup | ConsumerGroup | None, topic: TopicName) -> bool:
    """Whether live members may read the topic; where that cannot be told, they may."""
    if isinstance(group, ConsumerGroup):
        return topic in group.subscribed_topics()
    if group is None or not group.roster:
        return False
    topics = _topics_of_members(group)
    return topics is None or topic in topics


def _topics_of_members(group: ClassicGroup) -> frozenset[TopicName] | None:
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or group.protocol_name is None:
        return None
    try:
        return frozenset().union(
            *(subscribed_topics(member.metadata_for(group.protocol_name)) for member in group.roster)
        )
    except InvalidSubscription:
        return None


def expired_offsets(
    group: ClassicGroup | ConsumerGroup | None,
    offsets: Mapping[TopicPartition, CommittedOffset],
    config: GroupConfig,
    now_ms: int,
) -> list[TopicPartition]:
    """KIP-211: the clock of an offset runs from when nobody consumes its partition any more.

    That is the commit for consumers without membership and for topics that a stable group is not subscribed to, and the
    time the last member left for a group that is empty. In all other cases nothing expires.
    """
    since_ms = 0
    spared: frozenset[TopicName] | None = frozenset()
    if isinstance(group, ConsumerGroup):
        spared = group.subscribed_topics()
    elif group is not None and group.protocol_type is not None:
        if group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms or 0
        elif group.state is GroupState.STABLE:
            spared = _topics_of_members(group)
        else:
            return []
    if spared is None:
        return []
    return [
        topic_partition
        for topic_partition, committed in offsets.items()
        if topic_partition.topic not in spared and _is_expired(committed, since_ms, config, now_ms)
    ]


def _is_expired(committed: CommittedOffset, since_ms: int, config: GroupConfig, now_ms: int) -> bool:
    if committed.expire_timestamp_ms is not None:
        return now_ms >= committed.expire_timestamp_ms
    return now_ms - max(committed.commit_timestamp_ms, since_ms) >= config.offsets_retention_ms
