"""The groups of one partition of ``__consumer_offsets``: the machine that a coordinator runs for it.

``handle`` takes an event and the time, and returns what its runner must do, in order. Two kinds of state meet here:
``ReplicatedState`` is what the log says and changes by ``replay`` alone; a ``ClassicGroup`` is live membership, gone
with this coordinator and made anew from the log by the next. A ``ConsumerGroup`` is the log's word, with what is on its
way to the log counted in.
"""

from collections.abc import Callable
from typing import assert_never
from uuid import UUID

from quorate.coordination.core.effects import (
    AppendCommitted,
    AppendFailed,
    AppendToLog,
    CommandReceived,
    LeadershipLost,
    LogLoaded,
    Reply,
    ReplyWhenDurable,
    SetTimer,
    TimerFired,
    Token,
)
from quorate.coordination.core.errors import coordinator_error
from quorate.coordination.groups.core import classic_requests, offsets
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    Command,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ForgetTopics,
    GroupHeartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    MembershipCommand,
    SettlePendingOffsets,
    SyncGroup,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.classic_members import ClassicRequests
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat, DescribeConsumerGroup
from quorate.coordination.groups.core.consumer.coordination import ConsumerGroups
from quorate.coordination.groups.core.consumer.group_update import tombstones_of
from quorate.coordination.groups.core.effects import (
    AfterAppend,
    Append,
    ConsumerRebalanceTimer,
    ConsumerSessionTimer,
    Effect,
    Event,
    FinishRebalance,
    GroupSettingsChanged,
    OffsetExpiryTimer,
    RebalanceTimer,
    SessionTimer,
    TimerKey,
    TopicsChanged,
)
from quorate.coordination.groups.core.group_book import (
    GroupBook,
    delete_group,
    describe_consumer_group,
    describe_group,
    expire,
    forget_topics,
    list_groups,
)
from quorate.coordination.groups.core.records import CoordinatorRecord, GroupRecord, OffsetRecord, StoredGroup
from quorate.coordination.groups.core.refusal import refusal, refusal_after_append, refusal_while_loading
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_PRODUCER_ID, GroupId, ProducerId


class GroupCoordinatorShard:
    def __init__(self, config: GroupConfig, new_uuid: Callable[[], UUID]) -> None:
        self._config = config
        self._new_uuid = new_uuid
        self._is_loaded = False
        self._book = GroupBook()
        self._consumer_groups = ConsumerGroups(self._book, config, new_uuid)
        self._classic_requests = ClassicRequests(self._consumer_groups)

    def replay(self, record: CoordinatorRecord, producer_id: ProducerId = NO_PRODUCER_ID) -> None:
        """Apply one record of the log: its runner does this before ``LogLoaded``, afterwards only the shard does.

        ``producer_id`` names the transaction that the record was written in.
        """
        self._book.state.replay(record, producer_id)

    def replay_end(self, producer_id: ProducerId, *, is_commit: bool) -> None:
        """Apply the marker that ended a transaction; as ``replay``."""
        self._book.state.end_transaction(producer_id, is_commit=is_commit)

    def unresolved_patterns(self, command: ConsumerGroupHeartbeat) -> set[str]:
        """The patterns whose matching topics must be known before the heartbeat is handled."""
        return self._consumer_groups.unresolved_patterns(command)

    def handle(self, event: Event, now_ms: int) -> list[Effect]:
        """Apply one event; return what its runner must carry out, in order."""
        effects = self._dispatch(event, now_ms)
        for effect in effects:
            if isinstance(effect, AppendToLog):
                self._book.in_flight.add(effect)
        return effects

    def _dispatch(self, event: Event, now_ms: int) -> list[Effect]:
        match event:
            case CommandReceived(token=token, command=command):
                if not self._is_loaded:
                    return [Reply(token=token, result=refusal_while_loading(command))]
                return self._command(token, command, now_ms)
            case TimerFired(key=key):
                return self._timer_fired(key, now_ms)
            case AppendCommitted(append=append):
                return self._append_committed(append, now_ms)
            case AppendFailed(append=append, error=error):
                return self._append_failed(append, error, now_ms)
            case LogLoaded():
                return self._log_loaded(now_ms)
            case TopicsChanged(topics=topics):
                self._consumer_groups.topics = topics
                return []
            case GroupSettingsChanged(settings=settings):
                self._consumer_groups.own_settings = settings
                return []
            case LeadershipLost():
                return self._resign(now_ms)
            case _:
                assert_never(event)

    def _command(self, token: Token, command: Command, now_ms: int) -> list[Effect]:
        book = self._book
        match command:
            case JoinGroup() | SyncGroup() | GroupHeartbeat() | LeaveGroup():
                return self._membership_command(token, command, now_ms)
            case CommitOffsets():
                group = book.group(command.group_id)
                return offsets.commit_offsets(group, token, command, self._config, now_ms)
            case FetchOffsets():
                return offsets.fetch_offsets(book.state, token, command)
            case DeleteOffsets():
                group, known = book.group(command.group_id), book.known_offsets(command.group_id)
                return offsets.delete_offsets(group, known, token, command)
            case DescribeGroup():
                return [Reply(token=token, result=describe_group(book, command))]
            case ListGroups():
                return [Reply(token=token, result=list_groups(book, command))]
            case DeleteGroup():
                return delete_group(book, token, command)
            case ForgetTopics():
                return forget_topics(book, token, command)
            case SettlePendingOffsets():
                return offsets.settle_pending_offsets(token, command)
            case ConsumerGroupHeartbeat():
                return self._consumer_groups.heartbeat(token, command, now_ms)
            case DescribeConsumerGroup():
                return [Reply(token=token, result=describe_consumer_group(book, command, self._config.consumer))]
            case _:
                assert_never(command)

    def _membership_command(self, token: Token, command: MembershipCommand, now_ms: int) -> list[Effect]:
        if not command.group_id:
            return [Reply(token=token, result=refusal(command, ErrorCode.INVALID_GROUP_ID))]
        consumer_group = self._book.consumer.get(command.group_id)
        if consumer_group is not None and consumer_group.members:
            return self._classic_requests.handle(consumer_group, token, command, now_ms)
        group = self._book.live.get(command.group_id)
        if isinstance(command, JoinGroup):
            return self._join(group, token, command, now_ms)
        if isinstance(command, LeaveGroup):
            if group is None:
                return classic_requests.leave_unknown_group(token, command)
            return classic_requests.leave(group, token, command, now_ms)
        if group is None:
            return [Reply(token=token, result=refusal(command, ErrorCode.UNKNOWN_MEMBER_ID))]
        if isinstance(command, SyncGroup):
            return classic_requests.sync(group, token, command, now_ms)
        return classic_requests.heartbeat(group, token, command, now_ms)

    def _join(self, group: ClassicGroup | None, token: Token, command: JoinGroup, now_ms: int) -> list[Effect]:
        if group is None:
            group = ClassicGroup(command.group_id, self._config)
        effects = classic_requests.join(group, token, command, self._new_uuid(), now_ms)
        if group.roster or group.pending_members:
            self._book.live[command.group_id] = group
            return [*self._end_empty_consumer_group(command.group_id), *effects]
        return effects

    def _end_empty_consumer_group(self, group_id: GroupId) -> list[Effect]:
        """A consumer group without members makes way for a classic one; what it has committed stays."""
        empty = self._book.consumer.pop(group_id, None)
        return [] if empty is None else [AppendToLog(records=tombstones_of(empty), then=None)]

    def _timer_fired(self, key: TimerKey, now_ms: int) -> list[Effect]:
        match key:
            case OffsetExpiryTimer():
                return [*expire(self._book, self._config, now_ms), self._next_expiry(now_ms)]
            case SessionTimer(group_id=group_id, member_id=member_id):
                group = self._book.live.get(group_id)
                return [] if group is None else group.session_timer_fired(member_id, now_ms)
            case RebalanceTimer(group_id=group_id):
                group = self._book.live.get(group_id)
                return [] if group is None else group.rebalance_timer_fired(now_ms)
            case ConsumerSessionTimer() | ConsumerRebalanceTimer():
                return self._consumer_groups.timer_fired(key, now_ms)
            case _:
                assert_never(key)

    def _next_expiry(self, now_ms: int) -> Effect:
        return SetTimer(key=OffsetExpiryTimer(), at_ms=now_ms + self._config.offsets_retention_check_interval_ms)

    def _append_committed(self, append: Append, now_ms: int) -> list[Effect]:
        self._book.in_flight.remove(append)
        if append.end is not None:
            self.replay_end(append.end.producer_id, is_commit=append.end.marker.is_commit)
        producer_id = NO_PRODUCER_ID if append.transaction is None else append.transaction.producer_id
        for record in append.records:
            self.replay(record, producer_id)
            if isinstance(record, GroupRecord) and record.value is None:
                self._book.drop_if_gone(record.key.group_id)
        waiting = self._book.in_flight.take_waiting(append)
        also = [Reply(token=reply.token, result=reply.result) for reply in waiting]
        return [*self._after_commit(append, now_ms), *also]

    def _after_commit(self, append: Append, now_ms: int) -> list[Effect]:
        match append.then:
            case ReplyWhenDurable(token=token, result=result):
                return [Reply(token=token, result=result)]
            case FinishRebalance() as finish:
                group = self._awaiting_assignment(finish)
                stored = self._book.state.stored_group(finish.group_id)
                return [] if group is None or stored is None else group.finish_rebalance(stored, now_ms)
            case None:
                return []
            case _:
                assert_never(append.then)

    def _append_failed(self, append: Append, error: ErrorCode, now_ms: int) -> list[Effect]:
        self._book.in_flight.remove(append)
        effects = self._after_failure(append.then, error, now_ms)
        for reply in self._book.in_flight.take_waiting(append):
            effects += self._after_failure(reply, error, now_ms)
        return [*effects, *self._roll_back(append, error, now_ms)]

    def _roll_back(self, append: Append, error: ErrorCode, now_ms: int) -> list[Effect]:
        """The records are not in the log: the consumer groups that counted on them go back to what the log says."""
        effects: list[Effect] = []
        touched = {
            record.key.group_id for record in append.records if not isinstance(record, OffsetRecord | GroupRecord)
        }
        for group_id in sorted(touched):
            effects += self._consumer_groups.roll_back(group_id, coordinator_error(error), now_ms)
            stored = self._book.state.stored_group(group_id)
            if stored is not None and group_id not in self._book.live:
                effects += self._go_on(group_id, stored, now_ms)
        return effects

    def _after_failure(self, then: AfterAppend, error: ErrorCode, now_ms: int) -> list[Effect]:
        match then:
            case ReplyWhenDurable(token=token, command=command):
                return [Reply(token=token, result=refusal_after_append(command, error))]
            case FinishRebalance() as finish:
                group = self._awaiting_assignment(finish)
                return [] if group is None else group.fail_rebalance(coordinator_error(error), now_ms)
            case None:
                return []
            case _:
                assert_never(then)

    def _awaiting_assignment(self, finish: FinishRebalance) -> ClassicGroup | None:
        """The group, if it still waits for this append and has not started another rebalance meanwhile."""
        group = self._book.live.get(finish.group_id)
        if group is None or group.state is not GroupState.COMPLETING_REBALANCE:
            return None
        return group if group.generation == finish.generation else None

    def _log_loaded(self, now_ms: int) -> list[Effect]:
        """Members that were Stable go on where they were: each has a whole session to be heard of."""
        self._is_loaded = True
        effects = [self._next_expiry(now_ms)]
        for group_id, stored in self._book.state.stored_groups():
            effects += self._go_on(group_id, stored, now_ms)
        return [*effects, *self._consumer_groups.log_loaded(now_ms)]

    def _go_on(self, group_id: GroupId, stored: StoredGroup, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        group = self._book.live[group_id] = ClassicGroup.from_stored(group_id, stored, self._config)
        for member in group.roster:
            effects += group.hear_from(member, now_ms)
        if len(group.roster) > self._config.max_group_size:
            effects += group.rebalance(now_ms)
        return effects

    def _resign(self, now_ms: int) -> list[Effect]:
        """Answer everybody who waits: this node coordinates their groups no longer."""
        self._is_loaded = False
        effects: list[Effect] = []
        for append in self._book.in_flight.drain():
            waiting = self._book.in_flight.take_waiting(append)
            if isinstance(append.then, ReplyWhenDurable):
                waiting.append(append.then)
            for reply in waiting:
                effects += self._after_failure(reply, ErrorCode.NOT_COORDINATOR, now_ms)
        for group in self._book.live.values():
            for member in group.roster:
                effects += group.answer_waiting(member, ErrorCode.NOT_COORDINATOR)
        return effects
