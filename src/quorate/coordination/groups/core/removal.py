"""How groups and their offsets end: deleted by an administrator, with their topic, or by age.

Decides tombstones; an offset or a stored group is gone once its tombstone is committed, not before. However many there
are, each batch of them is one that the log takes.
"""

from collections.abc import Sequence
from typing import Final

from quorate.coordination.core.effects import AppendToLog, Reply, ReplyWhenDurable, Token
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import DeleteGroup, DeleteGroupResult, ForgetTopics, ForgetTopicsResult
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.group_update import tombstones_of
from quorate.coordination.groups.core.effects import AfterAppend, Effect
from quorate.coordination.groups.core.group_book import GroupBook
from quorate.coordination.groups.core.offsets import expired_offsets, tombstones
from quorate.coordination.groups.core.records import CoordinatorRecord, group_record
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId

_RECORDS_PER_BATCH: Final = 250


def delete_group(book: GroupBook, token: Token, command: DeleteGroup) -> list[Effect]:
    if not book.exists(command.group_id):
        return [Reply(token=token, result=DeleteGroupResult(error=ErrorCode.GROUP_ID_NOT_FOUND))]
    group, consumer_group = book.live.get(command.group_id), book.consumer.get(command.group_id)
    has_members = consumer_group is not None and bool(consumer_group.members)
    if has_members or (group is not None and group.state is not GroupState.EMPTY):
        return [Reply(token=token, result=DeleteGroupResult(error=ErrorCode.NON_EMPTY_GROUP))]
    offsets = tombstones(command.group_id, book.known_offsets(command.group_id))
    then = ReplyWhenDurable(token=token, command=command, result=DeleteGroupResult())
    return _appends((*offsets, *_end_of_group(book, command.group_id)), then)


def _end_of_group(book: GroupBook, group_id: GroupId) -> tuple[CoordinatorRecord, ...]:
    """Tombstones for the group itself. A consumer group is gone at once for everybody who asks."""
    consumer_group = book.consumer.pop(group_id, None)
    return (group_record(group_id, None),) if consumer_group is None else tombstones_of(consumer_group)


def forget_topics(book: GroupBook, token: Token, command: ForgetTopics) -> list[Effect]:
    records: list[CoordinatorRecord] = []
    for group_id in book.group_ids():
        doomed = [known for known in book.known_offsets(group_id) if known.topic in command.topics]
        records += tombstones(group_id, doomed)
    if not records:
        return [Reply(token=token, result=ForgetTopicsResult())]
    then = ReplyWhenDurable(token=token, command=command, result=ForgetTopicsResult())
    return _appends(tuple(records), then)


def expire(book: GroupBook, config: GroupConfig, now_ms: int) -> list[Effect]:
    """Tombstones for offsets past their retention, and for groups that have neither members nor offsets left."""
    effects: list[Effect] = []
    for group_id in book.group_ids():
        records = _expired_records(book, group_id, config, now_ms)
        if records:
            effects += _appends(records, None)
        else:
            book.drop_if_gone(group_id)
    return effects


def _expired_records(
    book: GroupBook, group_id: GroupId, config: GroupConfig, now_ms: int
) -> tuple[CoordinatorRecord, ...]:
    offsets = book.state.offsets_of(group_id)
    expired = set(expired_offsets(book.group(group_id), offsets, config, now_ms))
    # A fresh commit is on its way, or in an open transaction: the offset is in use.
    expired -= book.in_flight.offsets_of(group_id) | book.state.pending.of_group(group_id)
    records: tuple[CoordinatorRecord, ...] = tombstones(group_id, sorted(expired))
    nothing_left = not book.known_offsets(group_id) - expired
    is_stored = book.state.stored_group(group_id) is not None or group_id in book.consumer
    if nothing_left and is_stored and not book.has_members(group_id):
        return (*records, *_end_of_group(book, group_id))
    return records


def _appends(records: Sequence[CoordinatorRecord], then: AfterAppend) -> list[Effect]:
    """Who waits, waits for the last batch: the log commits them in order."""
    starts = range(0, len(records), _RECORDS_PER_BATCH)
    return [
        AppendToLog(
            records=tuple(records[start : start + _RECORDS_PER_BATCH]), then=then if start == starts[-1] else None
        )
        for start in starts
    ]
