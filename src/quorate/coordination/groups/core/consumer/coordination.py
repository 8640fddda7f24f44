"""The consumer groups of one shard: finds the group a request is for, and turns decisions into effects."""

from collections.abc import Callable, Mapping
from uuid import UUID

import msgspec

from quorate.coordination.core.effects import AppendToLog, CancelTimer, Reply, ReplyWhenDurable, SetTimer, Token
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import Command, Result
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig
from quorate.coordination.groups.core.consumer import heartbeat as consumer_heartbeat
from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.heartbeat import check_member, check_request, check_room, is_leaving
from quorate.coordination.groups.core.consumer.migration import (
    downgrade,
    may_downgrade,
    not_a_consumer_group,
    retire,
    upgrade,
)
from quorate.coordination.groups.core.consumer.records import CurrentAssignment, MemberState
from quorate.coordination.groups.core.consumer.topics import ClusterTopics, NoTopics
from quorate.coordination.groups.core.effects import AfterAppend, ConsumerRebalanceTimer, ConsumerSessionTimer, Effect
from quorate.coordination.groups.core.group_book import GroupBook
from quorate.coordination.groups.core.records import GroupRecord, OffsetRecord, group_record
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, MemberId


class ConsumerGroups:
    def __init__(self, book: GroupBook, config: GroupConfig, new_uuid: Callable[[], UUID]) -> None:
        self.book = book
        self.config = config
        self.new_uuid = new_uuid
        self.topics: ClusterTopics = NoTopics()
        self.own_settings: Mapping[GroupId, ConsumerGroupSettings] = {}
        # Classic members that have been told to join again and have not yet: they have a rebalance timeout for that.
        self.told_to_join: set[ConsumerRebalanceTimer] = set()

    def settings(self, group_id: GroupId) -> ConsumerGroupSettings:
        return self.own_settings.get(group_id, self.config.consumer)

    def unresolved_patterns(self, command: ConsumerGroupHeartbeat) -> set[str]:
        group = self.book.consumer.get(command.group_id) or ConsumerGroup(command.group_id)
        if not command.pattern and group.seen_topics_version == self.topics.version:
            return set()
        patterns = group.unresolved_patterns(self.topics.names_version)
        if command.pattern and not group.is_resolved(command.pattern, self.topics.names_version):
            patterns.add(command.pattern)
        return patterns

    def heartbeat(self, token: Token, command: ConsumerGroupHeartbeat, now_ms: int) -> list[Effect]:
        settings = self.settings(command.group_id)
        try:
            check_request(command, settings.assignors)
            if is_leaving(command):
                return self._leave(token, command, now_ms)
            if not command.member_id:
                command = msgspec.structs.replace(command, member_id=MemberId(str(self.new_uuid())))
            update = self._opened(command, now_ms)
            check_room(update.group, command.member_id, settings.max_group_size)
            check_member(update.group, command)
        except KafkaError as error:
            result = ConsumerGroupHeartbeatResult(error=error.code, message=error.message)
            return [Reply(token=token, result=result)]
        effects = self._install(update.group, now_ms)
        before = update.group.current(command.member_id)
        known = update.group.members.get(command.member_id)
        if known is not None and known.classic is not None:
            # It changes the protocol under its own member id: nobody waits for its JoinGroup or SyncGroup any more.
            effects += self.forget(update.group, command.member_id)
        result = consumer_heartbeat.stay(update, command, self.topics, settings, now_ms)
        effects += self.hear_from(update.group, command.member_id, now_ms)
        effects += self._watch_revocation(update.group, command.member_id, before, now_ms)
        return [*effects, *self.finish(update, token, command, result)]

    def _opened(self, command: ConsumerGroupHeartbeat, now_ms: int) -> GroupUpdate:
        """The group that the heartbeat is for, perhaps a new one; nothing is changed yet."""
        group_id = command.group_id
        group = self.book.consumer.get(group_id)
        if group is not None:
            return GroupUpdate(group)
        if command.member_epoch != JOIN_EPOCH:
            raise not_a_consumer_group(group_id)
        classic = self.book.live.get(group_id)
        if classic is None:
            return GroupUpdate(ConsumerGroup(group_id))
        if classic.state is GroupState.EMPTY:
            return GroupUpdate(ConsumerGroup(group_id), [group_record(group_id, None)])
        return upgrade(classic, self.topics, now_ms)

    def _install(self, group: ConsumerGroup, now_ms: int) -> list[Effect]:
        """Put the group in place, instead of the classic group of that name if there is one."""
        self.book.consumer[group.group_id] = group
        classic = self.book.live.pop(group.group_id, None)
        if classic is None:
            return []
        effects = retire(classic, ErrorCode.REBALANCE_IN_PROGRESS)
        for member_id in group.members:
            effects += self.hear_from(group, member_id, now_ms)
        return effects

    def _leave(self, token: Token, command: ConsumerGroupHeartbeat, now_ms: int) -> list[Effect]:
        group = self.book.consumer.get(command.group_id)
        if group is None:
            raise not_a_consumer_group(command.group_id)
        member_id = consumer_heartbeat.leaving_member(group, command)
        result = ConsumerGroupHeartbeatResult(member_id=member_id, member_epoch=command.member_epoch)
        then = ReplyWhenDurable(token=token, command=command, result=result)
        if consumer_heartbeat.stays_a_member(command):
            update = GroupUpdate(group)
            consumer_heartbeat.leave_for_a_while(update, member_id)
            return self.finish(update, token, command, result)
        return self.remove_members(group, [member_id], then, now_ms)

    def remove_members(
        self, group: ConsumerGroup, member_ids: list[MemberId], then: AfterAppend, now_ms: int
    ) -> list[Effect]:
        """Members left or were not heard of. Where only classic ones stay, the group becomes classic again."""
        effects: list[Effect] = [cancel for member_id in member_ids for cancel in self.forget(group, member_id)]
        update = GroupUpdate(group)
        for member_id in member_ids:
            update.remove_member(member_id)
        if may_downgrade(group, set(), self.config):
            return [*effects, *self.downgrade(update, then, now_ms)]
        update.advance_epoch(self.topics, now_ms, has_changed=True)
        return [*effects, AppendToLog(records=tuple(update.records), then=then)]

    def downgrade(self, update: GroupUpdate, then: AfterAppend, now_ms: int) -> list[Effect]:
        group = update.group
        effects: list[Effect] = [cancel for member_id in group.members for cancel in self.forget(group, member_id)]
        classic, record = downgrade(group, self.config, self.topics, now_ms)
        update.remove_group()
        del self.book.consumer[group.group_id]
        self.book.live[group.group_id] = classic
        effects.append(AppendToLog(records=(*update.records, record), then=then))
        for member in classic.roster:
            effects += classic.hear_from(member, now_ms)
        return [*effects, *classic.rebalance(now_ms)]

    def finish(self, update: GroupUpdate, token: Token, command: Command, result: Result) -> list[Effect]:
        """Answer when all that the answer shows is durable: the new records, or those that are still on their way."""
        then = ReplyWhenDurable(token=token, command=command, result=result)
        if update.records:
            return [AppendToLog(records=tuple(update.records), then=then)]
        earlier = self.book.in_flight.last_for(update.group.group_id)
        if earlier is None:
            return [Reply(token=token, result=result)]
        self.book.in_flight.reply_after(earlier, then)
        return []

    def hear_from(self, group: ConsumerGroup, member_id: MemberId, now_ms: int) -> list[Effect]:
        """The member is alive: its session starts again."""
        classic = group.members[member_id].classic
        timeout_ms = self.settings(group.group_id).session_timeout_ms if classic is None else classic.session_timeout_ms
        key = ConsumerSessionTimer(group_id=group.group_id, member_id=member_id)
        return [SetTimer(key=key, at_ms=now_ms + timeout_ms)]

    def forget(self, group: ConsumerGroup, member_id: MemberId) -> list[Effect]:
        rebalance = ConsumerRebalanceTimer(group_id=group.group_id, member_id=member_id)
        self.told_to_join.discard(rebalance)
        session = ConsumerSessionTimer(group_id=group.group_id, member_id=member_id)
        return [CancelTimer(key=session), CancelTimer(key=rebalance)]

    def _watch_revocation(
        self, group: ConsumerGroup, member_id: MemberId, before: CurrentAssignment, now_ms: int
    ) -> list[Effect]:
        """A member has its rebalance timeout to give partitions up; others wait for them."""
        must_revoke = group.current(member_id).state is MemberState.UNREVOKED_PARTITIONS
        had_to_revoke = before.state is MemberState.UNREVOKED_PARTITIONS
        key = ConsumerRebalanceTimer(group_id=group.group_id, member_id=member_id)
        if must_revoke and not (had_to_revoke and before == group.current(member_id)):
            return [SetTimer(key=key, at_ms=now_ms + group.members[member_id].rebalance_timeout_ms)]
        return [CancelTimer(key=key)] if had_to_revoke and not must_revoke else []

    def timer_fired(self, key: ConsumerSessionTimer | ConsumerRebalanceTimer, now_ms: int) -> list[Effect]:
        group = self.book.consumer.get(key.group_id)
        if group is None or key.member_id not in group.members:
            return []
        return self.remove_members(group, [key.member_id], None, now_ms)

    def log_loaded(self, now_ms: int) -> list[Effect]:
        """Members go on where they were: each has a whole session to be heard of, and to give up what it must."""
        effects: list[Effect] = []
        for group_id, stored in self.book.state.consumer_groups():
            group = self.book.consumer[group_id] = stored.copy()
            effects += self._start_timers(group, now_ms)
        return effects

    def _start_timers(self, group: ConsumerGroup, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for member_id, member in group.members.items():
            effects += self.hear_from(group, member_id, now_ms)
            if group.current(member_id).state is MemberState.UNREVOKED_PARTITIONS:
                key = ConsumerRebalanceTimer(group_id=group.group_id, member_id=member_id)
                effects.append(SetTimer(key=key, at_ms=now_ms + member.rebalance_timeout_ms))
        return effects

    def roll_back(self, group_id: GroupId, error: ErrorCode, now_ms: int) -> list[Effect]:
        """Records that were counted on are not in the log: the group is again what the log says."""
        effects: list[Effect] = []
        abandoned = self.book.consumer.pop(group_id, None)
        if abandoned is not None:
            effects += [cancel for each in abandoned.members for cancel in self.forget(abandoned, each)]
        stored = self.book.state.consumer_group(group_id)
        group = ConsumerGroup(group_id) if stored is None else stored.copy()
        for record in self.book.in_flight.records_of(group_id):
            if not isinstance(record, OffsetRecord | GroupRecord):
                group.replay(record)
        if group.is_gone:
            return effects
        classic = self.book.live.pop(group_id, None)
        if classic is not None:
            effects += retire(classic, error)
        self.book.consumer[group_id] = group
        return [*effects, *self._start_timers(group, now_ms)]
