"""What DescribeGroups and ListGroups show of a group. Pure."""

from quorate.groups.classic_group import ClassicGroup
from quorate.groups.commands import (
    DescribedMember,
    DescribeGroup,
    DescribeGroupResult,
    ListedGroup,
    ListGroups,
    ListGroupsResult,
)
from quorate.groups.group_book import GroupBook
from quorate.groups.group_state import GroupState
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId

GROUP_TYPE = "classic"


def describe(book: GroupBook, command: DescribeGroup) -> DescribeGroupResult:
    if not book.exists(command.group_id):
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


def listed(book: GroupBook, command: ListGroups) -> ListGroupsResult:
    if command.types and GROUP_TYPE not in command.types:
        return ListGroupsResult()
    found = (_listed_one(group_id, book.live.get(group_id)) for group_id in book.group_ids())
    return ListGroupsResult(
        groups=tuple(group for group in found if not command.states or group.state.lower() in command.states)
    )


def _listed_one(group_id: GroupId, group: ClassicGroup | None) -> ListedGroup:
    if group is None:
        return ListedGroup(group_id=group_id, protocol_type="", state=GroupState.EMPTY)
    return ListedGroup(group_id=group_id, protocol_type=group.protocol_type or "", state=group.state)
