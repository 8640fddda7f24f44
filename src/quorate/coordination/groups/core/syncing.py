"""SyncGroup and Heartbeat: members of the current generation ask for their assignment and stay alive."""

from quorate.coordination.core.effects import AppendToLog, Reply, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.commands import Heartbeat, HeartbeatResult, SyncGroup, SyncGroupResult
from quorate.coordination.groups.core.effects import Append, Effect, FinishRebalance
from quorate.coordination.groups.core.group_state import GroupState
from quorate.coordination.groups.core.records import group_record
from quorate.kernel.errors import ErrorCode


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


def heartbeat(group: ClassicGroup, token: Token, command: Heartbeat, now_ms: int) -> list[Effect]:
    error = group.roster.check(command.member_id, command.group_instance_id)
    if error is ErrorCode.NONE and command.generation != group.generation:
        error = ErrorCode.ILLEGAL_GENERATION
    if error is not ErrorCode.NONE:
        return [Reply(token=token, result=HeartbeatResult(error=error))]
    if group.state is GroupState.PREPARING_REBALANCE:
        error = ErrorCode.REBALANCE_IN_PROGRESS
    # While the leader still assigns, members already heartbeat; that must not send them back to JoinGroup.
    effects = group.hear_from(group.roster[command.member_id], now_ms)
    return [Reply(token=token, result=HeartbeatResult(error=error)), *effects]
