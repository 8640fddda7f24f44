"""The classic protocol's requests to consumer groups, turned into effects."""

from typing import assert_never

from quorate.coordination.core.effects import CancelTimer, Reply, ReplyWhenDurable, SetTimer, Token
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeftMember,
    MembershipCommand,
    SyncGroup,
    SyncGroupResult,
)
from quorate.coordination.groups.core.consumer import classic_members
from quorate.coordination.groups.core.consumer.coordination import ConsumerGroups
from quorate.coordination.groups.core.consumer.embedded_protocol import write_assignment
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.migration import may_downgrade
from quorate.coordination.groups.core.effects import ConsumerRebalanceTimer, Effect
from quorate.coordination.groups.core.refusal import refusal
from quorate.coordination.groups.core.subscription import CONSUMER_PROTOCOL_TYPE
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import MemberId


class ClassicRequests:
    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups

    def handle(self, group: ConsumerGroup, token: Token, command: MembershipCommand, now_ms: int) -> list[Effect]:
        try:
            match command:
                case JoinGroup():
                    return self._join(group, token, command, now_ms)
                case SyncGroup():
                    return self._sync(group, token, command, now_ms)
                case Heartbeat():
                    return self._heartbeat(group, token, command, now_ms)
                case LeaveGroup():
                    return self._leave(group, token, command, now_ms)
                case _:
                    assert_never(command)
        except KafkaError as error:
            return [Reply(token=token, result=refusal(command, error.code))]

    def _join(self, group: ConsumerGroup, token: Token, command: JoinGroup, now_ms: int) -> list[Effect]:
        groups = self._groups
        subscription = classic_members.check_join(group, command, groups.config, groups.topics)
        member_id = classic_members.joining_id(command, groups.new_uuid())
        is_dynamic = command.group_instance_id is None
        if command.member_id == NO_MEMBER_ID and is_dynamic and command.require_known_member_id:
            result = JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return [Reply(token=token, result=result)]
        holder = None if is_dynamic else group.static_member(command.group_instance_id or "")
        effects = groups.forget(group, holder) if holder is not None else []
        update = GroupUpdate(group)
        has_changed = classic_members.join(update, member_id, command, subscription)
        if may_downgrade(group, set(), groups.config):
            # It took the place of the last member with the consumer protocol: the group asks it to join again.
            then = ReplyWhenDurable(token=token, command=command, result=_rejoin(member_id))
            return [*effects, *groups.downgrade(update, then, now_ms)]
        update.advance_epoch(groups.topics, now_ms, has_changed=has_changed)
        update.assign(groups.topics, groups.settings(group.group_id).assignors[0], now_ms)
        current = update.reconcile(member_id, subscription.owned)
        effects += groups.hear_from(group, member_id, now_ms)
        effects += self._expect_sync(group, member_id, now_ms)
        result = JoinGroupResult(
            generation=current.member_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=command.protocols[0].name,
            member_id=member_id,
        )
        return [*effects, *groups.finish(update, token, command, result)]

    def _expect_sync(self, group: ConsumerGroup, member_id: MemberId, now_ms: int) -> list[Effect]:
        key = ConsumerRebalanceTimer(group_id=group.group_id, member_id=member_id)
        self._groups.told_to_join.discard(key)
        return [SetTimer(key=key, at_ms=now_ms + group.members[member_id].rebalance_timeout_ms)]

    def _sync(self, group: ConsumerGroup, token: Token, command: SyncGroup, now_ms: int) -> list[Effect]:
        classic, current = classic_members.check_classic_member(group, command)
        classic_members.check_sync(classic, command)
        heard = self._groups.hear_from(group, command.member_id, now_ms)
        if classic_members.must_join_before_sync(group, current):
            result = SyncGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS)
            told = self._tell_to_join(group, command.member_id, now_ms)
            return [Reply(token=token, result=result), *heard, *told]
        synced = SyncGroupResult(
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=command.protocol_name or classic.protocols[0].name,
            assignment=write_assignment(current.assigned, classic.protocols, self._groups.topics),
        )
        key = ConsumerRebalanceTimer(group_id=group.group_id, member_id=command.member_id)
        self._groups.told_to_join.discard(key)
        answer = self._groups.finish(GroupUpdate(group), token, command, synced)
        return [*heard, CancelTimer(key=key), *answer]

    def _heartbeat(self, group: ConsumerGroup, token: Token, command: Heartbeat, now_ms: int) -> list[Effect]:
        classic_members.check_classic_member(group, command)
        effects = self._groups.hear_from(group, command.member_id, now_ms)
        error = ErrorCode.NONE
        if classic_members.must_join_again(group, command.member_id):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            effects += self._tell_to_join(group, command.member_id, now_ms)
        return [Reply(token=token, result=HeartbeatResult(error=error)), *effects]

    def _tell_to_join(self, group: ConsumerGroup, member_id: MemberId, now_ms: int) -> list[Effect]:
        key = ConsumerRebalanceTimer(group_id=group.group_id, member_id=member_id)
        if key in self._groups.told_to_join:
            return []
        self._groups.told_to_join.add(key)
        return [SetTimer(key=key, at_ms=now_ms + group.members[member_id].rebalance_timeout_ms)]

    def _leave(self, group: ConsumerGroup, token: Token, command: LeaveGroup, now_ms: int) -> list[Effect]:
        left: list[LeftMember] = []
        gone: list[MemberId] = []
        for leaving in command.members:
            error = ErrorCode.NONE
            try:
                member_id = classic_members.leaving_member(group, leaving)
                gone += [member_id] if member_id not in gone else []
            except KafkaError as refused:
                error = refused.code
            left.append(
                LeftMember(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error=error)
            )
        result = LeaveGroupResult(members=tuple(left))
        if not gone:
            return [Reply(token=token, result=result)]
        then = ReplyWhenDurable(token=token, command=command, result=result)
        return self._groups.remove_members(group, gone, then, now_ms)


def _rejoin(member_id: MemberId) -> JoinGroupResult:
    return JoinGroupResult(error=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member_id)
