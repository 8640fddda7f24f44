"""Committing, fetching and deleting offsets: decides records and results, and leaves the log's state alone."""

from collections.abc import Collection
from typing import Final

from quorate.coordination.core.effects import AppendToLog, Reply, ReplyWhenDurable, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.commands import (
    CommitOffsets,
    CommitOffsetsResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    EndTransaction,
    EndTransactionResult,
    FetchOffsets,
    FetchOffsetsResult,
    OffsetToCommit,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.offset_rules import fetch_error
from quorate.coordination.groups.core.effects import Effect
from quorate.coordination.groups.core.offset_rules import commit_error, delete_error, is_subscribed
from quorate.coordination.groups.core.records import CommittedOffset, OffsetRecord, offset_record
from quorate.coordination.groups.core.refusal import refusal
from quorate.coordination.groups.core.replicated_state import ReplicatedState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, TopicPartition

_INT64_MAX: Final = 2**63 - 1


def commit_offsets(
    group: ClassicGroup | ConsumerGroup | None, token: Token, command: CommitOffsets, config: GroupConfig, now_ms: int
) -> list[Effect]:
    error = commit_error(group, command)
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


def end_transaction(token: Token, command: EndTransaction) -> list[Effect]:
    then = ReplyWhenDurable(token=token, command=command, result=EndTransactionResult())
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
    error = ErrorCode.NONE if consumer_group is None else fetch_error(consumer_group, command)
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
    error = delete_error(group)
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=DeleteOffsetsResult(error=error))]
    errors = {
        topic_partition: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        if is_subscribed(group, topic_partition.topic)
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
