"""All that a shard knows of its groups, what tools are shown of them, and how groups and their offsets end.

That is what the log says, live membership, and the records that were handed to the log and are not committed yet. These
are no state: nobody may read them. But what is decided next will come after them in the log, so decisions to delete
must count them in.

Groups and offsets end deleted by an administrator, with their topic, or by age. What is decided is tombstones; an
offset or a stored group is gone once its tombstone is committed, not before. However many there are, each batch of them
is one that the log takes.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from quorate.coordination.core.effects import AppendToLog, Reply, ReplyWhenDurable, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    DeleteGroup,
    DeleteGroupResult,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
    ForgetTopics,
    ForgetTopicsResult,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig
from quorate.coordination.groups.core.consumer.commands import (
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
    DescribedConsumerMember,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import tombstones_of
from quorate.coordination.groups.core.effects import AfterAppend, Append, Effect, PendingReply
from quorate.coordination.groups.core.offsets import expired_offsets, tombstones
from quorate.coordination.groups.core.records import CoordinatorRecord, GroupRecord, OffsetRecord, group_record
from quorate.coordination.groups.core.replicated_state import ReplicatedState
from quorate.kernel.errors import ErrorCode, clip
from quorate.kernel.ids import GroupId, MemberId, TopicPartition

CONSUMER = "consumer"

_RECORDS_PER_BATCH: Final = 250


class InFlightAppends:
    """Records that were handed to the log and are not committed yet."""

    def __init__(self) -> None:
        self._appends: list[Append] = []
        # Answers that show what an append changes, and so must not be given before it is committed.
        self._waiting: dict[Append, list[PendingReply]] = {}

    def add(self, append: Append) -> None:
        self._appends.append(append)

    def remove(self, append: Append) -> None:
        self._appends.remove(append)

    def last_for(self, group_id: GroupId) -> Append | None:
        """The newest append that changes the group."""
        for append in reversed(self._appends):
            if any(record.key.group_id == group_id for record in append.records):
                return append
        return None

    def reply_after(self, append: Append, reply: PendingReply) -> None:
        self._waiting.setdefault(append, []).append(reply)

    def take_waiting(self, append: Append) -> list[PendingReply]:
        return self._waiting.pop(append, [])

    def records_of(self, group_id: GroupId) -> Iterator[CoordinatorRecord]:
        for append in self._appends:
            yield from (record for record in append.records if record.key.group_id == group_id)

    def drain(self) -> list[Append]:
        drained, self._appends = self._appends, []
        return drained

    def stores_group(self, group_id: GroupId) -> bool:
        return any(isinstance(record, GroupRecord) for record in self._values_of(group_id))

    def offsets_of(self, group_id: GroupId) -> set[TopicPartition]:
        records = self._values_of(group_id)
        return {record.key.topic_partition for record in records if isinstance(record, OffsetRecord)}

    def _values_of(self, group_id: GroupId) -> Iterator[CoordinatorRecord]:
        for append in self._appends:
            for record in append.records:
                if record.key.group_id == group_id and record.value is not None:
                    yield record


class GroupBook:
    def __init__(self) -> None:
        self.state = ReplicatedState()
        # Every stored group is live too. One that is only live has members that no generation was stored for.
        self.live: dict[GroupId, ClassicGroup] = {}
        # Consumer groups, with what is on its way to the log counted in. A group is here or in ``live``, never in both.
        self.consumer: dict[GroupId, ConsumerGroup] = {}
        self.in_flight = InFlightAppends()

    def group(self, group_id: GroupId) -> ClassicGroup | ConsumerGroup | None:
        return self.consumer.get(group_id) or self.live.get(group_id)

    def group_ids(self) -> list[GroupId]:
        return sorted(self.state.group_ids() | self.live.keys() | self.consumer.keys())

    def exists(self, group_id: GroupId) -> bool:
        return group_id in self.live or group_id in self.consumer or bool(self.known_offsets(group_id))

    def known_offsets(self, group_id: GroupId) -> set[TopicPartition]:
        """The partitions with an offset, in the log or on its way there, in a transaction or not."""
        committed, pending = self.state.offsets_of(group_id).keys(), self.state.pending.of_group(group_id)
        return committed | pending | self.in_flight.offsets_of(group_id)

    def has_members(self, group_id: GroupId) -> bool:
        consumer = self.consumer.get(group_id)
        if consumer is not None and consumer.members:
            return True
        group = self.live.get(group_id)
        return group is not None and (group.state is not GroupState.EMPTY or bool(group.pending_members))

    def drop_if_gone(self, group_id: GroupId) -> None:
        """Forget the live group that the log no longer knows, unless members have come back meanwhile."""
        is_stored = self.state.stored_group(group_id) is not None or self.in_flight.stores_group(group_id)
        if not is_stored and not self.has_members(group_id):
            self.live.pop(group_id, None)


def describe_group(book: GroupBook, command: DescribeGroup) -> DescribeGroupResult:
    if not book.exists(command.group_id) or command.group_id in book.consumer:
        return DescribeGroupResult(error=ErrorCode.GROUP_ID_NOT_FOUND, group_id=command.group_id)
    group = book.live.get(command.group_id)
    if group is None:  # Offsets were committed without membership.
        return DescribeGroupResult(group_id=command.group_id, state=GroupState.EMPTY)
    # Outside of Stable there is no assignment in force, and no protocol that all members have agreed on.
    is_stable = group.state is GroupState.STABLE
    return DescribeGroupResult(
        group_id=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata_for(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.roster
        ),
    )


def describe_consumer_group(
    book: GroupBook, command: DescribeConsumerGroup, settings: ConsumerGroupSettings
) -> DescribeConsumerGroupResult:
    """What is durable of the group: who acts on an answer must not see what may yet be lost."""
    group = book.state.consumer_group(command.group_id)
    if group is None:
        kind = "is not a consumer group" if book.exists(command.group_id) else "not found"
        message = f"Group {clip(command.group_id)} {kind}."
        return DescribeConsumerGroupResult(
            error=ErrorCode.GROUP_ID_NOT_FOUND, message=message, group_id=command.group_id
        )
    return DescribeConsumerGroupResult(
        group_id=group.group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=group.preferred_assignor(settings.assignors[0]),
        members=tuple(_described_member(group, member_id) for member_id in sorted(group.members)),
    )


def _described_member(group: ConsumerGroup, member_id: MemberId) -> DescribedConsumerMember:
    member, current = group.members[member_id], group.current(member_id)
    return DescribedConsumerMember(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        topics=member.topics,
        pattern=member.pattern,
        assigned=current.assigned,
        target=group.target(member_id),
        is_classic=member.classic is not None,
    )


def list_groups(book: GroupBook, command: ListGroups) -> ListGroupsResult:
    found = (_listed(book, group_id) for group_id in book.group_ids())
    return ListGroupsResult(
        groups=tuple(
            group
            for group in found
            if (not command.states or group.state.lower() in command.states)
            and (not command.types or group.group_type in command.types)
        )
    )


def _listed(book: GroupBook, group_id: GroupId) -> ListedGroup:
    consumer = book.consumer.get(group_id)
    if consumer is not None:
        return ListedGroup(group_id=group_id, protocol_type=CONSUMER, state=consumer.state, group_type=CONSUMER)
    group = book.live.get(group_id)
    if group is None:
        return ListedGroup(group_id=group_id, protocol_type="", state=GroupState.EMPTY)
    return ListedGroup(group_id=group_id, protocol_type=group.protocol_type or "", state=group.state)


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
