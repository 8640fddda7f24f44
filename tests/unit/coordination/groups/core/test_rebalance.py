"""From joins to a generation and on to Stable: conversations of dynamic members with their coordinator."""

from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    DescribeGroup,
    DescribeGroupResult,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    LeavingMember,
    SyncGroupResult,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    REBALANCE_TIMEOUT_MS,
    SESSION_TIMEOUT_MS,
    Conversation,
    protocols,
    subscription,
    sync_request,
)


def state(talk: Conversation) -> GroupState:
    return talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).state


def test_first_rebalance_waits_for_members_that_start_together() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=3_000))
    first, first_join = talk.new_member()
    talk.advance(2_000)
    second, second_join = talk.new_member()

    talk.advance(1_000)
    assert talk.is_waiting(first_join), "a member came during the delay, so it starts again"
    talk.advance(3_000)
    assert talk.joined(first_join).generation == talk.joined(second_join).generation == 1
    assert {member.member_id for member in talk.joined(first_join).members} == {first, second}
    assert talk.joined(second_join).members == (), "only the leader is told who the members are"


def test_initial_delay_ends_with_the_rebalance_timeout() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=3_000))
    _, first_join = talk.new_member(rebalance_timeout_ms=5_000)
    talk.advance(2_900)
    talk.new_member(rebalance_timeout_ms=5_000)
    talk.advance(1_000)
    talk.new_member(rebalance_timeout_ms=5_000)

    talk.advance(1_100)
    assert talk.joined(first_join).generation == 1


def test_second_member_makes_the_first_one_rejoin() -> None:
    talk = Conversation()
    [first] = talk.stable_group(size=1)
    _, second_join = talk.new_member()

    assert talk.is_waiting(second_join)
    assert talk.heartbeat(first.member_id, first.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    rejoin = talk.join(first.member_id)
    assert talk.joined(rejoin).generation == talk.joined(second_join).generation == 2
    assert talk.joined(rejoin).leader == talk.joined(second_join).leader == first.member_id


def test_leader_assigns_and_everybody_gets_a_share() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)

    follower_sync = talk.sync(follower)
    assert talk.is_waiting(follower_sync)
    leader_sync = talk.sync(leader, {follower.member_id: b"his", leader.member_id: b"mine"})
    assert talk.reply(leader_sync, SyncGroupResult).assignment == b"mine"
    assert talk.reply(follower_sync, SyncGroupResult) == SyncGroupResult(
        protocol_type="consumer", protocol_name="range", assignment=b"his"
    )
    assert state(talk) is GroupState.STABLE


def test_assignment_is_handed_out_only_when_it_is_in_the_log() -> None:
    talk = Conversation(log_commits=False)
    _, join = talk.new_member()
    joined = talk.joined(join)

    sync = talk.sync(joined, {joined.member_id: b"all"})
    assert talk.is_waiting(sync)
    assert state(talk) is GroupState.COMPLETING_REBALANCE
    talk.commit()
    assert talk.reply(sync, SyncGroupResult).assignment == b"all"


def test_failed_append_sends_everybody_back_to_join() -> None:
    talk = Conversation(log_commits=False)
    _, join = talk.new_member()
    joined = talk.joined(join)
    sync = talk.sync(joined)

    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.reply(sync, SyncGroupResult).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert state(talk) is GroupState.PREPARING_REBALANCE
    assert talk.joined(talk.join(joined.member_id)).generation == joined.generation + 1


def test_assignment_of_a_generation_that_was_overtaken_is_not_handed_out() -> None:
    talk = Conversation(log_commits=False)
    _, join = talk.new_member()
    joined = talk.joined(join)
    sync = talk.sync(joined, {joined.member_id: b"all"})
    talk.new_member()

    talk.commit()
    assert talk.reply(sync, SyncGroupResult).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert state(talk) is GroupState.PREPARING_REBALANCE


def test_assignment_of_the_last_generation_is_not_handed_out_in_the_next() -> None:
    talk = Conversation(log_commits=False)
    member_id, join = talk.new_member()
    talk.sync(talk.joined(join), {member_id: b"all"})
    _, newcomers_join = talk.new_member()
    talk.join(member_id)
    newcomers_sync = talk.sync(talk.joined(newcomers_join))

    talk.commit()
    assert state(talk) is GroupState.COMPLETING_REBALANCE
    assert talk.is_waiting(newcomers_sync)


def test_member_left_out_by_the_leader_gets_an_empty_assignment() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)
    talk.sync(leader, {leader.member_id: b"all"})

    assert talk.reply(talk.sync(follower), SyncGroupResult).assignment == b""


def test_leader_that_never_syncs_is_dropped_and_the_others_go_on() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)
    follower_sync = talk.sync(follower)

    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 + 1):
        talk.heartbeat(leader.member_id, leader.generation)
        talk.advance(5_000)
    assert talk.reply(follower_sync, SyncGroupResult).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.heartbeat(leader.member_id, leader.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.joined(talk.join(follower.member_id)).leader == follower.member_id


def test_member_that_never_syncs_is_dropped_from_a_stable_group() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)
    talk.sync(leader)

    for _ in range(REBALANCE_TIMEOUT_MS // 5_000 + 1):
        talk.heartbeat(leader.member_id, leader.generation)
        talk.heartbeat(follower.member_id, follower.generation)
        talk.advance(5_000)
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(leader.member_id, leader.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_silent_member_expires_and_its_partitions_are_given_to_others() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)

    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(leader.member_id, leader.generation) is ErrorCode.NONE
    talk.advance(1)
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(leader.member_id, leader.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert [member.member_id for member in talk.joined(talk.join(leader.member_id)).members] == [leader.member_id]


def test_heartbeats_cost_no_timer() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    before = dict(talk.timers)

    talk.advance(5_000)
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE
    assert talk.timers == before
    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_waiting_for_a_rebalance_is_not_silence() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)
    talk.leave(MemberId("nobody"))
    rejoin = talk.join(leader.member_id)

    for _ in range(5):
        talk.heartbeat(follower.member_id, follower.generation)
        talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.is_waiting(rejoin)
    talk.join(follower.member_id)
    assert talk.joined(rejoin).error is ErrorCode.NONE


def test_member_that_does_not_rejoin_in_time_is_left_behind() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)
    rejoin = talk.join(leader.member_id)

    for _ in range(REBALANCE_TIMEOUT_MS // 5_000):
        talk.heartbeat(follower.member_id, follower.generation)
        talk.advance(5_000)
    assert [member.member_id for member in talk.joined(rejoin).members] == [leader.member_id]
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_starts_a_rebalance_and_the_last_one_leaves_the_group_empty() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)

    assert talk.leave(leader.member_id) is ErrorCode.NONE
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.leave(follower.member_id) is ErrorCode.NONE
    assert state(talk) is GroupState.EMPTY


def test_many_leave_in_one_request_and_each_is_told_how_it_went() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)
    pending = talk.joined(talk.join()).member_id
    names = [leader.member_id, "nobody", follower.member_id, pending]
    members = tuple(LeavingMember(member_id=MemberId(name), group_instance_id=None) for name in names)

    result = talk.ask(LeaveGroup(group_id=GROUP, members=members), LeaveGroupResult)
    assert [member.error for member in result.members] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert state(talk) is GroupState.EMPTY


def test_leaving_a_group_that_does_not_exist_names_the_member_unknown() -> None:
    assert Conversation().leave(MemberId("nobody")) is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_leaves_while_it_waits_gets_its_answer() -> None:
    talk = Conversation()
    talk.stable_group(size=1)
    newcomer, join = talk.new_member()

    assert talk.leave(newcomer) is ErrorCode.NONE
    assert talk.joined(join).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_follower_that_retries_gets_the_generation_again_without_a_rebalance() -> None:
    talk = Conversation()
    _, follower = talk.stable_group(size=2)

    again = talk.joined(talk.join(follower.member_id))
    assert (again.generation, again.members) == (follower.generation, ())
    assert state(talk) is GroupState.STABLE


def test_leader_that_joins_again_starts_a_rebalance() -> None:
    talk = Conversation()
    leader, _ = talk.stable_group(size=2)

    assert talk.is_waiting(talk.join(leader.member_id))
    assert state(talk) is GroupState.PREPARING_REBALANCE


def test_changed_subscription_starts_a_rebalance() -> None:
    talk = Conversation()
    _, follower = talk.stable_group(size=2)

    assert talk.is_waiting(talk.join(follower.member_id, protocols=protocols("range", metadata=subscription("other"))))


def test_leader_that_lost_its_join_answer_is_told_the_members_again() -> None:
    talk = Conversation()
    member_id, join = talk.new_member()

    assert talk.joined(talk.join(member_id)) == talk.joined(join)


def test_second_sync_of_a_waiting_member_replaces_the_first() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)

    first, second = talk.sync(follower), talk.sync(follower)
    talk.sync(leader, {follower.member_id: b"share"})
    assert talk.reply(first, SyncGroupResult).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert talk.reply(second, SyncGroupResult).assignment == b"share"


def test_impatient_leader_does_not_store_its_assignment_twice() -> None:
    talk = Conversation(log_commits=False)
    _, join = talk.new_member()
    joined = talk.joined(join)
    talk.sync(joined, {joined.member_id: b"first"})

    second = talk.sync(joined, {joined.member_id: b"second"})
    assert len(talk.uncommitted) == 1
    talk.commit()
    assert talk.reply(second, SyncGroupResult).assignment == b"first"


def sync_error(talk: Conversation, member: JoinGroupResult, **changes: object) -> ErrorCode:
    fields: dict[str, object] = {"member_id": member.member_id, "generation": member.generation}
    request = sync_request(**(fields | changes))  # type: ignore[arg-type]
    return talk.ask(request, SyncGroupResult).error


def test_sync_of_strangers_and_of_the_past_is_refused() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)

    assert sync_error(talk, member, member_id="stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync_error(talk, member, generation=0) is ErrorCode.ILLEGAL_GENERATION
    assert sync_error(talk, member, instance="instance") is ErrorCode.UNKNOWN_MEMBER_ID
    assert sync_error(Conversation(), member) is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_for_another_protocol_is_refused() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    request = sync_request(member.member_id, member.generation)
    for changes in ({"protocol_type": "connect"}, {"protocol_name": "sticky"}):
        fields = {name: getattr(request, name) for name in request.__struct_fields__}
        changed = type(request)(**(fields | changes))
        assert talk.ask(changed, SyncGroupResult).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_during_a_rebalance_sends_the_member_back_to_join() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    talk.new_member()

    assert talk.reply(talk.sync(member), SyncGroupResult).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_heartbeats_while_the_leader_assigns_are_fine() -> None:
    talk = Conversation()
    _, join = talk.new_member()
    joined = talk.joined(join)

    assert talk.heartbeat(joined.member_id, joined.generation) is ErrorCode.NONE


def test_heartbeats_of_strangers_and_of_the_past_are_refused() -> None:
    talk = Conversation()
    assert talk.heartbeat(MemberId("stranger"), 1) is ErrorCode.UNKNOWN_MEMBER_ID
    [member] = talk.stable_group(size=1)

    assert talk.heartbeat(MemberId("stranger"), 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.heartbeat(member.member_id, member.generation - 1) is ErrorCode.ILLEGAL_GENERATION
