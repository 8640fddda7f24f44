"""LeaveGroup: members that go, one or many in a request (KIP-345)."""

from quorate.coordination.core.effects import CancelTimer, Reply, Token
from quorate.coordination.groups.core.classic_group import ClassicGroup
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    LeftMember,
)
from quorate.coordination.groups.core.effects import Effect, SessionTimer
from quorate.kernel.errors import ErrorCode


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
