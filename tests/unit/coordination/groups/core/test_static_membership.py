"""KIP-345: members that keep their place through a restart, and KIP-814: leaders that need not assign again."""

import pytest

from quorate.coordination.core.effects import Token
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    DescribeGroup,
    DescribeGroupResult,
    JoinGroupResult,
    SyncGroupResult,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Conversation,
    protocols,
    subscription,
)


def join(talk: Conversation, instance: str, member_id: str = "", **changes: object) -> Token:
    return talk.join(MemberId(member_id), group_instance_id=instance, **changes)


def static_pair(talk: Conversation) -> tuple[JoinGroupResult, JoinGroupResult]:
    """A Stable group of the instances "one" (the leader) and "two"."""
    first = talk.joined(join(talk, "one"))
    second = join(talk, "two")
    leader, follower = talk.joined(join(talk, "one", first.member_id)), talk.joined(second)
    talk.sync(leader, {leader.member_id: b"ones", follower.member_id: b"twos"}, "one")
    talk.sync(follower, instance="two")
    return leader, follower


def state(talk: Conversation) -> GroupState:
    return talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).state


def test_static_member_joins_at_once_under_an_id_named_after_its_instance() -> None:
    talk = Conversation()

    joined = talk.joined(join(talk, "one", require_known_member_id=True))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("one-")


def test_restarted_follower_takes_its_place_without_a_rebalance() -> None:
    talk = Conversation()
    leader, follower = static_pair(talk)

    returned = talk.joined(join(talk, "two"))
    assert returned.member_id != follower.member_id
    assert (returned.generation, returned.leader) == (follower.generation, leader.member_id)
    assert state(talk) is GroupState.STABLE
    assert talk.reply(talk.sync(returned, instance="two"), SyncGroupResult).assignment == b"twos"


def test_restarted_leader_is_shown_its_old_id_as_leader_so_that_it_does_not_assign() -> None:
    talk = Conversation()
    leader, _ = static_pair(talk)

    returned = talk.joined(join(talk, "one"))
    assert (returned.leader, returned.members, returned.skip_assignment) == (leader.member_id, (), False)
    assert returned.member_id != leader.member_id


def test_restarted_leader_that_understands_it_is_told_to_skip_the_assignment() -> None:
    talk = Conversation()
    static_pair(talk)

    returned = talk.joined(join(talk, "one", supports_skip_assignment=True))
    assert (returned.leader, returned.skip_assignment) == (returned.member_id, True)
    assert {member.group_instance_id for member in returned.members} == {"one", "two"}


def test_restarted_follower_is_never_told_to_skip() -> None:
    talk = Conversation()
    static_pair(talk)

    assert talk.joined(join(talk, "two", supports_skip_assignment=True)).skip_assignment is False


@pytest.mark.parametrize(
    "changed", [protocols("range", metadata=subscription("other")), protocols("sticky", "range", metadata=b"x")]
)
def test_restart_with_another_subscription_starts_a_rebalance(changed: object) -> None:
    talk = Conversation()
    static_pair(talk)

    assert talk.is_waiting(join(talk, "two", protocols=changed))
    assert state(talk) is GroupState.PREPARING_REBALANCE


def test_restart_that_turns_the_vote_starts_a_rebalance() -> None:
    talk = Conversation()
    joined = talk.joined(join(talk, "one", protocols=protocols("range", "sticky")))
    talk.sync(joined, instance="one")

    returned = talk.joined(join(talk, "one", protocols=protocols("sticky", "range")))
    assert (returned.generation, returned.protocol_name) == (joined.generation + 1, "sticky")


def test_answer_to_a_restarted_member_waits_for_the_log() -> None:
    talk = Conversation()
    static_pair(talk)
    talk.log_commits = False

    returned = join(talk, "two")
    assert talk.is_waiting(returned)
    talk.commit()
    new_id = talk.joined(returned).member_id
    talk.restart()
    assert talk.heartbeat(new_id, talk.joined(returned).generation, "two") is ErrorCode.NONE


def test_restarted_member_is_refused_where_its_new_id_cannot_be_stored() -> None:
    talk = Conversation()
    static_pair(talk)
    talk.log_commits = False
    returned = join(talk, "two")

    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.joined(returned).error is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_old_incarnation_is_fenced_everywhere() -> None:
    talk = Conversation()
    _, old = static_pair(talk)
    talk.join()
    talk.joined(join(talk, "two"))

    assert talk.heartbeat(old.member_id, old.generation, "two") is ErrorCode.FENCED_INSTANCE_ID
    assert talk.joined(join(talk, "two", old.member_id)).error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.reply(talk.sync(old, instance="two"), SyncGroupResult).error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.leave(old.member_id, "two") is ErrorCode.FENCED_INSTANCE_ID


def test_old_incarnation_that_waits_is_fenced_at_once() -> None:
    talk = Conversation()
    static_pair(talk)
    dynamic, _ = talk.new_member()
    assert dynamic
    old = join(talk, "two")

    new = join(talk, "two")
    assert talk.joined(old).error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.is_waiting(new)


def test_restart_while_the_leader_assigns_starts_over() -> None:
    talk = Conversation()
    leader, _ = static_pair(talk)
    rejoined = join(talk, "one", leader.member_id)
    two = join(talk, "two")
    assert talk.joined(two).generation == talk.joined(rejoined).generation
    waiting_sync = talk.sync(talk.joined(two), instance="two")

    assert talk.is_waiting(join(talk, "two"))
    assert talk.reply(waiting_sync, SyncGroupResult).error is ErrorCode.FENCED_INSTANCE_ID
    assert state(talk) is GroupState.PREPARING_REBALANCE


def test_session_of_the_old_incarnation_does_not_end_the_new_one() -> None:
    talk = Conversation()
    leader, _ = static_pair(talk)
    talk.advance(SESSION_TIMEOUT_MS - 1)
    talk.heartbeat(leader.member_id, leader.generation, "one")
    returned = talk.joined(join(talk, "two"))

    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(returned.member_id, returned.generation, "two") is ErrorCode.NONE


def test_absent_static_member_outlives_a_rebalance_until_its_session_ends() -> None:
    talk = Conversation()
    talk.joined(join(talk, "away", session_timeout_ms=1_000_000, rebalance_timeout_ms=5_000))
    newcomer = join(talk, "here", rebalance_timeout_ms=5_000)

    talk.advance(5_000)
    assert {member.group_instance_id for member in talk.joined(newcomer).members} == {"away", "here"}
    assert talk.joined(newcomer).leader == talk.joined(newcomer).member_id


def test_group_whose_static_members_are_all_away_waits_for_their_sessions() -> None:
    talk = Conversation()
    leader, _ = static_pair(talk)
    talk.leave(MemberId(""), "one")
    assert leader

    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert state(talk) is GroupState.PREPARING_REBALANCE
    talk.advance(REBALANCE_TIMEOUT_MS)
    assert state(talk) is GroupState.EMPTY


def test_administrator_removes_an_instance_without_its_member_id() -> None:
    talk = Conversation()
    _, follower = static_pair(talk)

    assert talk.leave(MemberId(""), "two") is ErrorCode.NONE
    assert talk.leave(MemberId(""), "two") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(follower.member_id, follower.generation, "two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_unknown_instance_with_a_member_id_must_start_afresh() -> None:
    talk = Conversation()
    _, follower = static_pair(talk)

    assert talk.joined(join(talk, "three", follower.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_instance_cannot_use_an_id_that_was_given_to_a_dynamic_member() -> None:
    talk = Conversation()
    static_pair(talk)
    pending = talk.joined(talk.join()).member_id

    assert talk.joined(join(talk, "three", pending)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_returned_member_that_never_syncs_does_not_break_the_sync_deadline() -> None:
    talk = Conversation()
    leader, follower = static_pair(talk)
    rejoined = join(talk, "one", leader.member_id)
    talk.join(follower.member_id, group_instance_id="two")
    leader = talk.joined(rejoined)
    talk.sync(leader, {}, "one")
    returned = talk.joined(join(talk, "two"))

    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 + 1):
        talk.heartbeat(leader.member_id, leader.generation, "one")
        talk.heartbeat(returned.member_id, returned.generation, "two")
        talk.advance(5_000)
    assert state(talk) is GroupState.STABLE
