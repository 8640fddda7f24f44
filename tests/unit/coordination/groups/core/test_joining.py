"""Who is let into a group: ids, protocols, timeouts and size."""

import pytest

from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import DescribeGroup, DescribeGroupResult, JoinGroupResult
from quorate.coordination.groups.core.config import GroupConfig
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    SESSION_TIMEOUT_MS,
    Conversation,
    join_request,
    protocols,
)


def state(talk: Conversation) -> GroupState:
    return talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).state


def test_member_must_join_a_second_time_with_the_id_it_was_given() -> None:
    talk = Conversation()

    first = talk.joined(talk.join())
    assert first.error is ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    second = talk.joined(talk.join(first.member_id))
    assert (second.error, second.generation, second.leader) == (ErrorCode.NONE, 1, first.member_id)


def test_old_clients_join_at_once() -> None:
    talk = Conversation()

    assert talk.joined(talk.join(require_known_member_id=False)).generation == 1


def test_id_that_was_given_out_and_never_used_does_not_hold_the_group_up() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    ghost = talk.joined(talk.join()).member_id
    rejoin = talk.join(member.member_id)

    assert talk.is_waiting(rejoin)
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.joined(rejoin).generation == 2
    assert talk.joined(talk.join(ghost)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_unused_id_that_lapses_does_not_disturb_a_stable_group() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    talk.join()

    talk.advance(SESSION_TIMEOUT_MS - 1)
    talk.heartbeat(member.member_id, member.generation)
    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE


def test_new_member_whose_join_is_parked_for_long_is_given_up() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=0, new_member_join_timeout_ms=20_000))
    [member] = talk.stable_group(size=1)
    _, newcomer = talk.new_member()

    for _ in range(4):
        talk.heartbeat(member.member_id, member.generation)
        talk.advance(5_000)
    assert talk.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_protocol_that_most_members_prefer_among_the_common_ones_is_chosen() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=100))
    preferences = [("sticky", "range"), ("range", "sticky"), ("unique", "range", "sticky")]
    joins = [talk.new_member(protocols=protocols(*names))[1] for names in preferences[:2]]
    joins.append(talk.new_member(protocols=protocols(*preferences[2]))[1])

    talk.advance(200)
    assert {talk.joined(join).protocol_name for join in joins} == {"range"}


@pytest.mark.parametrize(
    "changes",
    [
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": ()},
        {"protocols": protocols("roundrobin")},
    ],
)
def test_member_that_shares_no_protocol_is_refused(changes: dict[str, object]) -> None:
    talk = Conversation()
    talk.stable_group(size=1)

    assert talk.joined(talk.join(**changes)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state(talk) is GroupState.STABLE


def test_refused_first_member_leaves_no_group_behind() -> None:
    talk = Conversation()

    assert talk.joined(talk.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    result = talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult)
    assert (result.error, result.state) == (ErrorCode.GROUP_ID_NOT_FOUND, GroupState.DEAD)


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_session_timeout_outside_the_bounds_is_refused(session_timeout_ms: int) -> None:
    talk = Conversation()

    joined = talk.joined(talk.join(session_timeout_ms=session_timeout_ms))
    assert joined.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_group_without_a_name_is_refused() -> None:
    talk = Conversation()

    assert talk.joined(talk.join(group_id=GroupId(""))).error is ErrorCode.INVALID_GROUP_ID


def test_full_group_takes_nobody_but_its_own() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=0, max_group_size=1))
    [member] = talk.stable_group(size=1)

    refused = talk.joined(talk.join())
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert talk.joined(talk.join(member.member_id)).error is ErrorCode.NONE


def test_group_over_its_size_after_a_restart_sheds_members() -> None:
    talk = Conversation()
    first, second = talk.stable_group(size=2)
    talk.config = GroupConfig(initial_rebalance_delay_ms=0, max_group_size=1)
    talk.restart()

    assert state(talk) is GroupState.PREPARING_REBALANCE
    kept, shed = talk.join(first.member_id), talk.join(second.member_id)
    assert talk.joined(shed).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(talk.joined(kept).members) == 1


def test_second_join_of_a_waiting_member_replaces_the_first() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    newcomer, first = talk.new_member()

    second = talk.join(newcomer)
    assert talk.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    talk.join(member.member_id)
    assert talk.joined(second).generation == 2


def test_joining_with_an_unknown_id_is_refused() -> None:
    talk = Conversation()

    assert talk.joined(talk.join(MemberId("stranger"))).error is ErrorCode.UNKNOWN_MEMBER_ID
    talk.stable_group(size=1)
    assert talk.joined(talk.join(MemberId("stranger"))).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_groups_do_not_touch_each_other() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    other = talk.ask(join_request(group_id=GroupId("other"), require_known_member_id=False), JoinGroupResult)

    assert other.generation == 1
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE
