"""What JoinGroup, SyncGroup, Heartbeat and LeaveGroup may do to a classic group.

Who is let in, and when that starts a rebalance; who gets an assignment; and members that go, one or many in a request
(KIP-345).
"""

from uuid import UUID

from quorate.coordination.core.effects import AppendToLog, CancelTimer, Reply, ReplyWhenDurable, SetTimer, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.classic_protocol import GroupState
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
    SyncGroup,
    SyncGroupResult,
)
from quorate.coordination.groups.core.effects import Append, Effect, FinishRebalance, SessionTimer
from quorate.coordination.groups.core.members import ClassicMember
from quorate.coordination.groups.core.records import group_record
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId


def join(group: ClassicGroup, token: Token, command: JoinGroup, new_id: UUID, now_ms: int) -> list[Effect]:
    config = group.config
    if not config.min_session_timeout_ms <= command.session_timeout_ms <= config.max_session_timeout_ms:
        return _refuse(token, ErrorCode.INVALID_SESSION_TIMEOUT, command.member_id)
    if not _has_room_for(group, command.member_id):
        return _turn_away(group, token, command, now_ms)
    if not _speaks_with(group, command):
        return _refuse(token, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, command.member_id)
    if command.member_id == NO_MEMBER_ID:
        return _join_without_id(group, token, command, new_id, now_ms)
    return _join_with_id(group, token, command, now_ms)


def _refuse(token: Token, error: ErrorCode, member_id: MemberId) -> list[Effect]:
    return [Reply(token=token, result=JoinGroupResult(error=error, member_id=member_id))]


def _has_room_for(group: ClassicGroup, member_id: MemberId) -> bool:
    member = group.roster.get(member_id)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            # An oversized group sheds members here: the first to rejoin may stay.
            joined = member is not None and member.join_token is not None
            return joined or group.roster.joined_count < group.config.max_group_size
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member is not None or len(group.roster) < group.config.max_group_size
        case _:
            return True


def _turn_away(group: ClassicGroup, token: Token, command: JoinGroup, now_ms: int) -> list[Effect]:
    effects = _refuse(token, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    if group.pending_members.pop(command.member_id, None) is not None:
        effects.append(CancelTimer(key=SessionTimer(group_id=group.group_id, member_id=command.member_id)))
    member = group.roster.get(command.member_id)
    if member is not None:
        effects += group.remove_member(member, ErrorCode.GROUP_MAX_SIZE_REACHED)
    return [*effects, *group.complete_join_if_all_joined(now_ms)]


def _speaks_with(group: ClassicGroup, command: JoinGroup) -> bool:
    names = [protocol.name for protocol in command.protocols]
    if not command.protocol_type or not names:
        return False
    if not group.roster:
        return True
    return command.protocol_type == group.protocol_type and group.roster.agrees_with(names)


def _join_without_id(group: ClassicGroup, token: Token, command: JoinGroup, new_id: UUID, now_ms: int) -> list[Effect]:
    member_id = command.own_member_id(new_id)
    if group.roster.static_member(command.group_instance_id) is not None:
        return _replace_static_member(group, token, command, member_id, now_ms)
    if command.group_instance_id is None and command.require_known_member_id:
        # KIP-394: a client that gave up on its first JoinGroup must not leave a ghost behind.
        lapses_at_ms = now_ms + command.session_timeout_ms
        group.pending_members[member_id] = lapses_at_ms
        key = SessionTimer(group_id=group.group_id, member_id=member_id)
        return [SetTimer(key=key, at_ms=lapses_at_ms), *_refuse(token, ErrorCode.MEMBER_ID_REQUIRED, member_id)]
    return _add_member(group, token, command, member_id, now_ms)


def _join_with_id(group: ClassicGroup, token: Token, command: JoinGroup, now_ms: int) -> list[Effect]:
    if command.group_instance_id is None and group.pending_members.pop(command.member_id, None) is not None:
        return _add_member(group, token, command, command.member_id, now_ms)
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return _refuse(token, error, command.member_id)
    member = group.roster[command.member_id]
    if _needs_rebalance(group, member, command):
        effects = group.answer_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)
        group.roster.rejoin(member, command)
        member.join_token = token
        return [*effects, *group.rebalance(now_ms)]
    # A retry of a request whose answer was lost: tell the member where the group stands.
    return [Reply(token=token, result=group.generation_for(member)), *group.hear_from(member, now_ms)]


def _needs_rebalance(group: ClassicGroup, member: ClassicMember, command: JoinGroup) -> bool:
    match group.state:
        case GroupState.COMPLETING_REBALANCE:
            return member.protocols != command.protocols
        case GroupState.STABLE:
            # The leader joins again when what it assigns has changed, such as the partitions of a topic.
            return member.member_id == group.roster.leader or member.protocols != command.protocols
        case _:
            return True


def _add_member(
    group: ClassicGroup, token: Token, command: JoinGroup, member_id: MemberId, now_ms: int
) -> list[Effect]:
    if not group.roster:
        group.protocol_type = command.protocol_type
    member = ClassicMember.joining(member_id, command)
    member.join_token = token
    group.roster.add(member)
    if group.state is GroupState.PREPARING_REBALANCE:
        group.note_join_during_initial_delay()
    return [*group.hear_from(member, now_ms), *group.rebalance(now_ms)]


def _replace_static_member(
    group: ClassicGroup, token: Token, command: JoinGroup, member_id: MemberId, now_ms: int
) -> list[Effect]:
    """The instance restarted (KIP-345): it takes its old place, and whoever still uses the old id is fenced."""
    member = group.roster.static_member(command.group_instance_id)
    assert member is not None
    old_member_id, old_metadata = member.member_id, member.metadata_for(group.protocol_name)
    was_leader = old_member_id == group.roster.leader
    effects = group.answer_waiting(member, ErrorCode.FENCED_INSTANCE_ID)
    group.roster.rejoin(member, command)
    effects += group.rename_member(member, member_id, now_ms)
    unchanged = (
        group.state is GroupState.STABLE
        and group.roster.select_protocol() == group.protocol_name
        and member.metadata_for(group.protocol_name) == old_metadata
    )
    if not unchanged:
        member.join_token = token
        return [*effects, *group.rebalance(now_ms)]
    result = _rejoined_without_rebalance(group, member, command, old_member_id if was_leader else None)
    assignments = {known.member_id: known.assignment for known in group.roster}
    record = group_record(group.group_id, group.to_stored(assignments, now_ms))
    then = ReplyWhenDurable(token=token, command=command, result=result)
    return [*effects, AppendToLog(records=(record,), then=then)]


def _rejoined_without_rebalance(
    group: ClassicGroup, member: ClassicMember, command: JoinGroup, led_as: MemberId | None
) -> JoinGroupResult:
    """The current generation for a returned instance; ``led_as`` is its old id if it led the group under it.

    A returned leader must not assign again: nobody would be told. From version 9 on it can be told so (KIP-814);
    before, it is shown its old id as the leader's, so that it takes itself for a follower.
    """
    leader = group.roster.leader
    assert leader is not None
    skip_assignment = led_as is not None and command.supports_skip_assignment
    return JoinGroupResult(
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=leader if led_as is None or skip_assignment else led_as,
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=group.joined_members() if skip_assignment else (),
    )


def sync(group: ClassicGroup, token: Token, command: SyncGroup, now_ms: int) -> list[Effect]:
    error = _sync_error(group, command)
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=SyncGroupResult(error=error))]
    member = group.roster[command.member_id]
    group.unsynced_members.discard(command.member_id)
    effects: list[Effect] = [] if group.unsynced_members else group.clear_phase_deadline()
    if group.state is GroupState.STABLE:
        return [*effects, Reply(token=token, result=group.assignment_for(member)), *group.hear_from(member, now_ms)]
    # A second request of the same member: the first one's connection is gone or its client has given up.
    effects += group.answer_waiting(member, ErrorCode.REBALANCE_IN_PROGRESS)
    member.sync_token = token
    if command.member_id == group.roster.leader and not group.assignment_in_flight:
        effects.append(_store_assignments(group, command, now_ms))
    return effects


def _sync_error(group: ClassicGroup, command: SyncGroup) -> ErrorCode:
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if command.protocol_type not in (None, group.protocol_type):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if command.protocol_name not in (None, group.protocol_name):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _store_assignments(group: ClassicGroup, command: SyncGroup, now_ms: int) -> Append:
    group.assignment_in_flight = True
    record = group_record(group.group_id, group.to_stored(command.assignments, now_ms))
    then = FinishRebalance(group_id=group.group_id, generation=group.generation)
    return AppendToLog(records=(record,), then=then)


def heartbeat(group: ClassicGroup, token: Token, command: GroupHeartbeat, now_ms: int) -> list[Effect]:
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is ErrorCode.NONE and command.generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=GroupHeartbeatResult(error=error))]
    if group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    # While the leader still assigns, members already heartbeat; that must not send them back to JoinGroup.
    effects = group.hear_from(group.roster[command.member_id], now_ms)
    return [Reply(token=token, result=GroupHeartbeatResult(error=error)), *effects]


def leave(group: ClassicGroup, token: Token, command: LeaveGroup, now_ms: int) -> list[Effect]:
    effects: list[Effect] = []
    left: list[LeftMember] = []
    members_before, pending_before = len(group.roster), len(group.pending_members)
    for leaving in command.members:
        error = _leave_one(group, leaving, effects)
        left.append(LeftMember(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id, error=error))
    effects.append(Reply(token=token, result=LeaveGroupResult(members=tuple(left))))
    if len(group.roster) < members_before:
        effects += group.rebalance(now_ms)
    elif len(group.pending_members) < pending_before:
        effects += group.complete_join_if_all_joined(now_ms)
    return effects


def _leave_one(group: ClassicGroup, leaving: LeavingMember, effects: list[Effect]) -> ErrorCode:
    if leaving.group_instance_id is None and group.pending_members.pop(leaving.member_id, None) is not None:
        effects.append(CancelTimer(key=SessionTimer(group_id=group.group_id, member_id=leaving.member_id)))
        return ErrorCode.NONE
    static_member = group.roster.static_member(leaving.group_instance_id)
    if static_member is not None and leaving.member_id == NO_MEMBER_ID:
        # An administrator removes an instance without knowing under which id it runs.
        effects += group.remove_member(static_member, ErrorCode.UNKNOWN_MEMBER_ID)
        return ErrorCode.NONE
    error = group.roster.check(leaving.member_id, leaving.group_instance_id)
    if error is ErrorCode.NONE:
        effects += group.remove_member(group.roster[leaving.member_id], ErrorCode.UNKNOWN_MEMBER_ID)
    return error


def leave_unknown_group(token: Token, command: LeaveGroup) -> list[Effect]:
    left = tuple(
        LeftMember(
            member_id=leaving.member_id,
            group_instance_id=leaving.group_instance_id,
            error=ErrorCode.UNKNOWN_MEMBER_ID,
        )
        for leaving in command.members
    )
    return [Reply(token=token, result=LeaveGroupResult(members=left))]
