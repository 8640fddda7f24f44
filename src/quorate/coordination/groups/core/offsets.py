"""Committing, fetching and deleting offsets: who may, and which of them have outlived their retention.

Decides records and results, and leaves the log's state alone.
"""

from collections.abc import Collection, Mapping
from typing import Final

from quorate.coordination.core.effects import AppendToLog, Reply, ReplyWhenDurable, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    CommitOffsets,
    CommitOffsetsResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    FetchOffsets,
    FetchOffsetsResult,
    OffsetToCommit,
    SettlePendingOffsets,
    SettlePendingOffsetsResult,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedProtocol,
    subscribed_topics,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.effects import Effect
from quorate.coordination.groups.core.records import CommittedOffset, OffsetRecord, offset_record
from quorate.coordination.groups.core.refusal import refusal
from quorate.coordination.groups.core.replicated_state import ReplicatedState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, TopicName, TopicPartition

_INT64_MAX: Final = 2**63 - 1


def commit_offsets(
    group: ClassicGroup | ConsumerGroup | None, token: Token, command: CommitOffsets, config: GroupConfig, now_ms: int
) -> list[Effect]:
    error = _commit_error(group, command)
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=refusal(command, error))]
    effects: list[Effect] = []
    if isinstance(group, ClassicGroup) and (member := group.roster.get(command.member_id)) is not None:
        effects += group.hear_from(member, now_ms)
    errors: dict[TopicPartition, ErrorCode] = {}
    records: list[OffsetRecord] = []
    for offset in command.offsets:
        if len(offset.metadata.encode()) > config.offset_metadata_max_bytes:
            errors[offset.topic_partition] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        errors[offset.topic_partition] = ErrorCode.NONE
        value = _committed(offset, command.retention_time_ms, now_ms)
        records.append(offset_record(command.group_id, offset.topic_partition, value))
    result = CommitOffsetsResult(errors=errors)
    if not records:
        return [*effects, Reply(token=token, result=result)]
    then = ReplyWhenDurable(token=token, command=command, result=result)
    return [*effects, AppendToLog(records=tuple(records), then=then, transaction=command.transaction)]


def settle_pending_offsets(token: Token, command: SettlePendingOffsets) -> list[Effect]:
    then = ReplyWhenDurable(token=token, command=command, result=SettlePendingOffsetsResult())
    return [AppendToLog(records=(), then=then, end=command.end)]


def _committed(offset: OffsetToCommit, retention_time_ms: int | None, now_ms: int) -> CommittedOffset:
    return CommittedOffset(
        offset=offset.offset,
        leader_epoch=offset.leader_epoch,
        metadata=offset.metadata,
        commit_timestamp_ms=now_ms,
        expire_timestamp_ms=None if retention_time_ms is None else _expiry(now_ms, retention_time_ms),
    )


def _expiry(now_ms: int, retention_time_ms: int) -> int:
    """A client may ask for any int64, and the log has no room for more than one."""
    return max(0, min(now_ms + retention_time_ms, _INT64_MAX))


def fetch_offsets(state: ReplicatedState, token: Token, command: FetchOffsets) -> list[Effect]:
    consumer_group = state.consumer_group(command.group_id)
    error = ErrorCode.NONE if consumer_group is None else _fetch_error(consumer_group, command)
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=refusal(command, error))]
    committed = state.offsets_of(command.group_id)
    wanted = committed if command.topic_partitions is None else command.topic_partitions
    unstable = state.pending.of_group(command.group_id).intersection(wanted) if command.require_stable else set()
    offsets = {
        topic_partition: committed[topic_partition]
        for topic_partition in wanted
        if topic_partition in committed and topic_partition not in unstable
    }
    return [Reply(token=token, result=FetchOffsetsResult(offsets=offsets, unstable=frozenset(unstable)))]


def delete_offsets(
    group: ClassicGroup | ConsumerGroup | None, known: Collection[TopicPartition], token: Token, command: DeleteOffsets
) -> list[Effect]:
    """``known`` are the partitions with an offset, in the log or on its way there."""
    if group is None and not known:
        return [Reply(token=token, result=DeleteOffsetsResult(error=ErrorCode.GROUP_ID_NOT_FOUND))]
    error = _delete_error(group)
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=DeleteOffsetsResult(error=error))]
    errors = {
        topic_partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if _is_subscribed(group, topic_partition.topic)
        else ErrorCode.NONE
        for topic_partition in command.topic_partitions
    }
    deletable = [
        topic_partition
        for topic_partition, error in errors.items()
        if error is ErrorCode.NONE and topic_partition in known
    ]
    result = DeleteOffsetsResult(errors=errors)
    if not deletable:
        return [Reply(token=token, result=result)]
    then = ReplyWhenDurable(token=token, command=command, result=result)
    return [AppendToLog(records=tombstones(command.group_id, deletable), then=then)]


def tombstones(group_id: GroupId, topic_partitions: Collection[TopicPartition]) -> tuple[OffsetRecord, ...]:
    return tuple(offset_record(group_id, topic_partition, None) for topic_partition in topic_partitions)


def _commit_error(group: ClassicGroup | ConsumerGroup | None, command: CommitOffsets) -> ErrorCode:
    if command.transaction is not None and _is_anonymous(command):
        return ErrorCode.NONE  # Before KIP-447 a producer could not say for which member it commits.
    if isinstance(group, ConsumerGroup):
        error = _consumer_commit_error(group, command)
        is_stale = error is ErrorCode.STALE_MEMBER_EPOCH and command.transaction is not None
        return ErrorCode.ILLEGAL_GENERATION if is_stale else error  # Producers do not know epochs of members.
    if group is None:
        # Nobody manages membership here; a generation can only stem from a group that is gone.
        return ErrorCode.NONE if command.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if command.generation < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if _is_anonymous(command):
        return ErrorCode.UNKNOWN_MEMBER_ID  # A tool or a simple consumer must not meddle with live members.
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE and command.transaction is None:
        return ErrorCode.REBALANCE_IN_PROGRESS  # The member has no assignment yet that it could commit for.
    return ErrorCode.NONE


def _is_anonymous(command: CommitOffsets) -> bool:
    return command.generation < 0 and command.member_id == NO_MEMBER_ID and command.group_instance_id is None


def _delete_error(group: ClassicGroup | ConsumerGroup | None) -> ErrorCode:
    if group is None or isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    if group.state is GroupState.EMPTY or group.protocol_type == CONSUMER_PROTOCOL_TYPE:
        return ErrorCode.NONE
    return ErrorCode.NON_EMPTY_GROUP  # What the members of another protocol read is unknown.


def _is_subscribed(group: ClassicGroup | ConsumerGroup | None, topic: TopicName) -> bool:
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
    except MalformedProtocol:
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


def _consumer_commit_error(group: ConsumerGroup, command: CommitOffsets) -> ErrorCode:
    if command.generation < 0 and not group.members:
        return ErrorCode.NONE  # A tool may set the offsets of a group that nobody is a member of.
    instance_id = command.group_instance_id
    holder = None if instance_id is None else group.static_member(instance_id)
    if holder is not None and holder != command.member_id:
        return ErrorCode.FENCED_INSTANCE_ID
    member = group.members.get(command.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_classic = member.classic is not None
    if not is_classic and not command.supports_member_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if command.generation == group.current(command.member_id).member_epoch:
        return ErrorCode.NONE
    return ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH


def _fetch_error(group: ConsumerGroup, command: FetchOffsets) -> ErrorCode:
    if command.member_id in (None, NO_MEMBER_ID) and command.member_epoch < 0:
        return ErrorCode.NONE  # From a tool, or from a client that does not say who it is.
    member = None if command.member_id is None else group.members.get(command.member_id)
    if member is None or command.member_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is not None and command.member_epoch < 0:
        return ErrorCode.NONE
    is_current = command.member_epoch == group.current(command.member_id).member_epoch
    return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH
