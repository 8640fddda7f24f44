"""What a coordinator that takes over knows, and what members are told while it changes."""

import pytest

from quorate.coordination.core.effects import CommandReceived, Reply, Token
from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    Command,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    DescribeGroupResult,
    FetchOffsets,
    ForgetTopics,
    GroupHeartbeat,
    JoinGroupResult,
    LeaveGroup,
    ListGroups,
    Result,
    SyncGroupResult,
)
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId
from tests.unit.coordination.groups.core.conversation import (
    GROUP,
    SESSION_TIMEOUT_MS,
    Conversation,
    commit_request,
    join_request,
    partition,
    sync_request,
)

MEMBER = MemberId("member")


def test_members_go_on_after_a_restart_without_joining_again() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)
    talk.commit_offset(7, leader.member_id, leader.generation)

    talk.restart()
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.NONE
    assert talk.commit_offset(8, leader.member_id, leader.generation) is ErrorCode.NONE
    assert talk.reply(talk.sync(follower), SyncGroupResult).assignment == follower.member_id.encode()
    assert talk.committed_offset() == 8
    described = talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult)
    assert described.state is GroupState.STABLE
    assert (described.protocol_type, described.protocol_name) == ("consumer", "range")
    assert {member.assignment.decode() for member in described.members} == {leader.member_id, follower.member_id}


def test_members_that_died_with_the_coordinator_expire_after_a_whole_session() -> None:
    talk = Conversation()
    leader, follower = talk.stable_group(size=2)
    talk.advance(SESSION_TIMEOUT_MS - 1)
    talk.restart()

    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(leader.member_id, leader.generation) is ErrorCode.NONE
    talk.advance(1)
    assert talk.heartbeat(follower.member_id, follower.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leader_is_still_the_leader_after_a_restart() -> None:
    talk = Conversation()
    first, second = talk.stable_group(size=2)
    talk.restart()

    assert talk.is_waiting(talk.join(first.member_id)), "the leader rebalances the group when it joins"
    assert talk.joined(talk.join(second.member_id)).leader == first.member_id


def test_rebalance_that_was_under_way_starts_over_after_a_restart() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    newcomer, _ = talk.new_member()
    talk.join(member.member_id)
    talk.restart()

    assert talk.heartbeat(member.member_id, member.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert talk.joined(talk.join(newcomer)).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.joined(talk.join(member.member_id)).generation == member.generation + 1


def test_commit_that_did_not_reach_the_log_is_gone_after_a_restart() -> None:
    talk = Conversation()
    talk.commit_offset(1)
    talk.log_commits = False
    talk.send(commit_request(2))

    talk.restart()
    assert talk.committed_offset() == 1


def test_generation_goes_on_counting_in_a_group_that_was_empty() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    talk.leave(member.member_id)
    talk.restart()

    _, join = talk.new_member()
    assert talk.joined(join).generation > member.generation


COMMANDS: list[Command] = [
    join_request(),
    sync_request(MEMBER, 1),
    GroupHeartbeat(group_id=GROUP, generation=1, member_id=MEMBER, group_instance_id=None),
    LeaveGroup(group_id=GROUP, members=()),
    commit_request(1),
    FetchOffsets(group_id=GROUP, topic_partitions=None),
    DeleteOffsets(group_id=GROUP, topic_partitions=()),
    DescribeGroup(group_id=GROUP),
    ListGroups(),
    DeleteGroup(group_id=GROUP),
    ForgetTopics(topics=frozenset()),
]


def errors_of(result: Result) -> set[ErrorCode]:
    return set(result.errors.values()) if isinstance(result, CommitOffsetsResult) else {result.error}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
def test_loading_coordinator_asks_for_patience(command: Command) -> None:
    shard = Conversation().new_shard()

    [effect] = shard.handle(CommandReceived(token=Token(1), command=command), 0)
    expected = {"SyncGroup": ErrorCode.REBALANCE_IN_PROGRESS, "GroupHeartbeat": ErrorCode.NONE}
    assert isinstance(effect, Reply)
    assert errors_of(effect.result) == {expected.get(type(command).__name__, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}


def test_everybody_who_waits_is_sent_to_the_new_coordinator() -> None:
    talk = Conversation()
    leader, follower = talk.joined_group(size=2)
    waiting_sync = talk.sync(follower)
    other_join = talk.send(join_request(require_known_member_id=False, group_id="other"))
    second = talk.send(join_request(require_known_member_id=False, group_id="other"))
    talk.log_commits = False
    commit = talk.send(commit_request(1, topic="elsewhere", generation=-1))
    stored_sync = talk.sync(leader)

    talk.lose_leadership()
    assert talk.joined(other_join).error is ErrorCode.NONE
    assert talk.joined(second).error is ErrorCode.NOT_COORDINATOR
    assert talk.reply(waiting_sync, SyncGroupResult).error is ErrorCode.NOT_COORDINATOR
    assert talk.reply(stored_sync, SyncGroupResult).error is ErrorCode.NOT_COORDINATOR
    assert talk.reply(commit, CommitOffsetsResult).errors == {partition("elsewhere"): ErrorCode.UNKNOWN_MEMBER_ID}


def test_commit_on_its_way_to_the_log_is_refused_when_leadership_is_lost() -> None:
    talk = Conversation(log_commits=False)
    commit = talk.send(commit_request(1))

    talk.lose_leadership()
    assert talk.reply(commit, CommitOffsetsResult).errors == {partition(): ErrorCode.NOT_COORDINATOR}
    assert isinstance(talk.replies[talk.join()], JoinGroupResult)
