"""What DescribeGroups and ListGroups show."""

import msgspec
import pytest

from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import DescribeGroup, DescribeGroupResult, ListGroups, ListGroupsResult
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    Conversation,
    commit_request,
    join_request,
    subscription,
)


def describe(talk: Conversation, group_id: GroupId = GROUP) -> DescribeGroupResult:
    return talk.ask(DescribeGroup(group_id=group_id), DescribeGroupResult)


def test_stable_group_shows_members_with_subscription_and_assignment() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)

    described = describe(talk)
    assert (described.state, described.protocol_name) == (GroupState.STABLE, "range")
    [shown] = described.members
    assert shown.member_id == member.member_id
    assert (shown.client_id, shown.client_host) == ("client", "/127.0.0.1")
    assert (shown.metadata, shown.assignment) == (subscription("orders"), member.member_id.encode())


def test_group_in_a_rebalance_shows_members_without_an_assignment() -> None:
    talk = Conversation()
    talk.stable_group(size=1)
    talk.new_member()

    described = describe(talk)
    assert (described.state, described.protocol_name) == (GroupState.PREPARING_REBALANCE, "")
    assert [(member.metadata, member.assignment) for member in described.members] == [(b"", b"")] * 2


def test_group_that_only_has_offsets_is_empty() -> None:
    talk = Conversation()
    talk.commit_offset(1)

    described = describe(talk)
    assert (described.error, described.state, described.protocol_type) == (ErrorCode.NONE, GroupState.EMPTY, "")


def test_missing_group_is_dead() -> None:
    described = describe(Conversation())

    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ListGroups(), {"orders-readers", "joining", "offsets-only"}),
        (ListGroups(states=frozenset({"stable"})), {"orders-readers"}),
        (ListGroups(states=frozenset({"empty", "completingrebalance"})), {"joining", "offsets-only"}),
        (ListGroups(types=frozenset({"classic"})), {"orders-readers", "joining", "offsets-only"}),
        (ListGroups(types=frozenset({"consumer"})), set()),
    ],
)
def test_groups_are_listed_by_state_and_type(command: ListGroups, expected: set[str]) -> None:
    talk = Conversation()
    talk.stable_group(size=1)
    talk.send(join_request(group_id=GroupId("joining"), require_known_member_id=False))
    talk.send(msgspec.structs.replace(commit_request(1), group_id=GroupId("offsets-only")))

    listed = talk.ask(command, ListGroupsResult).groups
    assert {group.group_id for group in listed} == expected
    assert {group.group_type for group in listed} <= {"classic"}
