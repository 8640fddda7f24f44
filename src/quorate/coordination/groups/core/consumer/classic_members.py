"""Members of a consumer group that still speak the classic protocol: what they ask and are told.

Such a member joins to learn its next epoch, which is its generation, and syncs to get its assignment. It is told to
join again whenever it could take a step towards its target.
"""

from typing import assert_never
from uuid import UUID

from quorate.coordination.core.effects import CancelTimer, Reply, ReplyWhenDurable, SetTimer, Token
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
    MembershipCommand,
    SyncGroup,
    SyncGroupResult,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.commands import JOIN_EPOCH
from quorate.coordination.groups.core.consumer.coordination import ConsumerGroups
from quorate.coordination.groups.core.consumer.embedded_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    MalformedProtocol,
    Subscription,
    read_subscription,
    write_assignment,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.group_update import GroupUpdate
from quorate.coordination.groups.core.consumer.heartbeat import (
    check_instance,
    check_room,
    replace_static_member,
    unknown_instance,
    unknown_member,
)
from quorate.coordination.groups.core.consumer.migration import may_downgrade
from quorate.coordination.groups.core.consumer.records import (
    ClassicSupport,
    ConsumerMember,
    CurrentAssignment,
    MemberState,
)
from quorate.coordination.groups.core.consumer.topics import ClusterTopics
from quorate.coordination.groups.core.effects import ConsumerRebalanceTimer, Effect
from quorate.coordination.groups.core.refusal import refusal
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import MemberId


class ClassicRequests:
    """The classic protocol's requests to consumer groups, turned into effects."""

    def __init__(self, groups: ConsumerGroups) -> None:
        self._groups = groups

    def handle(self, group: ConsumerGroup, token: Token, command: MembershipCommand, now_ms: int) -> list[Effect]:
        try:
            match command:
                case JoinGroup():
                    return self._join(group, token, command, now_ms)
                case SyncGroup():
                    return self._sync(group, token, command, now_ms)
                case GroupHeartbeat():
                    return self._heartbeat(group, token, command, now_ms)
                case LeaveGroup():
                    return self._leave(group, token, command, now_ms)
                case _:
                    assert_never(command)
        except KafkaError as error:
            return [Reply(token=token, result=refusal(command, error.code))]

    def _join(self, group: ConsumerGroup, token: Token, command: JoinGroup, now_ms: int) -> list[Effect]:
        groups = self._groups
        subscription = _check_join(group, command, groups.config, groups.topics)
        member_id = _joining_id(command, groups.new_uuid())
        is_dynamic = command.group_instance_id is None
        if command.member_id == NO_MEMBER_ID and is_dynamic and command.require_known_member_id:
            result = JoinGroupResult(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            return [Reply(token=token, result=result)]
        holder = None if is_dynamic else group.static_member(command.group_instance_id or "")
        effects = groups.forget(group, holder) if holder is not None else []
        update = GroupUpdate(group)
        has_changed = _put_member(update, member_id, command, subscription)
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
        classic, current = _check_classic_member(group, command)
        _check_sync(classic, command)
        heard = self._groups.hear_from(group, command.member_id, now_ms)
        if _must_join_before_sync(group, current):
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

    def _heartbeat(self, group: ConsumerGroup, token: Token, command: GroupHeartbeat, now_ms: int) -> list[Effect]:
        _check_classic_member(group, command)
        effects = self._groups.hear_from(group, command.member_id, now_ms)
        error = ErrorCode.NONE
        if _must_join_again(group, command.member_id):
            error = ErrorCode.REBALANCE_IN_PROGRESS
            effects += self._tell_to_join(group, command.member_id, now_ms)
        return [Reply(token=token, result=GroupHeartbeatResult(error=error)), *effects]

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
                member_id = _leaving_member(group, leaving)
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


def _check_join(group: ConsumerGroup, command: JoinGroup, config: GroupConfig, topics: ClusterTopics) -> Subscription:
    if not config.min_session_timeout_ms <= command.session_timeout_ms <= config.max_session_timeout_ms:
        raise KafkaError(ErrorCode.INVALID_SESSION_TIMEOUT)
    if not _speaks_with(group, command):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    holder = None if command.group_instance_id is None else group.static_member(command.group_instance_id)
    check_room(group, holder or command.member_id, config.consumer.max_group_size)
    if command.member_id != NO_MEMBER_ID and command.group_instance_id is not None:
        if holder is None:
            raise unknown_instance(command.group_instance_id)
        check_instance(command.member_id, command.group_instance_id, holder)
    try:
        return read_subscription(command.protocols[0].metadata, topics)
    except MalformedProtocol as error:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error


def _speaks_with(group: ConsumerGroup, command: JoinGroup) -> bool:
    """Whether the group could become classic again with this member in it."""
    names = {protocol.name for protocol in command.protocols}
    for member_id, member in group.members.items():
        if member.classic is not None and member_id != command.member_id:
            names &= {protocol.name for protocol in member.classic.protocols}
    return command.protocol_type == CONSUMER_PROTOCOL_TYPE and bool(names)


def _joining_id(command: JoinGroup, new_id: UUID) -> MemberId:
    return command.member_id or command.own_member_id(new_id)


def _put_member(
    update: GroupUpdate,
    member_id: MemberId,
    command: JoinGroup,
    subscription: Subscription,
) -> bool:
    """Returns whether there is a member or a subscription that the target assignment does not know."""
    group = update.group
    if command.group_instance_id is not None:
        holder = group.static_member(command.group_instance_id)
        if holder is not None and holder != member_id:
            replace_static_member(update, holder, member_id, JOIN_EPOCH)
    known = group.members.get(member_id)
    member = ConsumerMember(
        instance_id=command.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        topics=subscription.topics,
        rebalance_timeout_ms=command.rebalance_timeout_ms,
        classic=ClassicSupport(session_timeout_ms=command.session_timeout_ms, protocols=command.protocols),
    )
    update.put_member(member_id, member)
    return known is None or (known.topics, known.pattern) != (member.topics, member.pattern)


def _check_classic_member(
    group: ConsumerGroup, command: SyncGroup | GroupHeartbeat
) -> tuple[ClassicSupport, CurrentAssignment]:
    """The member that asks, in the generation that it must be in."""
    if command.group_instance_id is not None:
        holder = group.static_member(command.group_instance_id)
        if holder is None:
            raise unknown_instance(command.group_instance_id)
        check_instance(command.member_id, command.group_instance_id, holder)
    member = group.members.get(command.member_id)
    if member is None or member.classic is None:
        raise unknown_member(command.member_id)
    current = group.current(command.member_id)
    if command.generation != current.member_epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member.classic, current


def _check_sync(classic: ClassicSupport, command: SyncGroup) -> None:
    names = {protocol.name for protocol in classic.protocols}
    if command.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or not names | {None} >= {command.protocol_name}:
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)


def _must_join_before_sync(group: ConsumerGroup, current: CurrentAssignment) -> bool:
    """A member that has partitions to revoke finishes that first, and joins again by itself."""
    return group.epoch > current.member_epoch and current.state is not MemberState.UNREVOKED_PARTITIONS


def _must_join_again(group: ConsumerGroup, member_id: MemberId) -> bool:
    """Whether there is a step that the member can take: to a new epoch, to revoke, or to get what others released."""
    current = group.current(member_id)
    return (
        current.member_epoch < group.epoch
        or current.state is MemberState.UNREVOKED_PARTITIONS
        or (current.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member_id))
    )


def _leaving_member(group: ConsumerGroup, leaving: LeavingMember) -> MemberId:
    """Who leaves by LeaveGroup; a tool that removes an instance need not know its member id."""
    if leaving.group_instance_id is not None:
        holder = group.static_member(leaving.group_instance_id)
        if holder is None:
            raise unknown_instance(leaving.group_instance_id)
        if leaving.member_id != NO_MEMBER_ID:
            check_instance(leaving.member_id, leaving.group_instance_id, holder)
    else:
        holder = leaving.member_id
    member = group.members.get(holder)
    if member is None or member.classic is None:  # Members with the consumer protocol leave by heartbeat.
        raise unknown_member(holder)
    return holder
