"""Committing, fetching, deleting and expiring offsets."""

import msgspec
import pytest

from quorate.coordination.groups.core.classic_protocol import GroupState
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    CommitOffsetsResult,
    DeleteGroup,
    DeleteGroupResult,
    DeleteOffsets,
    DeleteOffsetsResult,
    DescribeGroup,
    DescribeGroupResult,
    FetchOffsets,
    FetchOffsetsResult,
    ForgetTopics,
    ForgetTopicsResult,
    OffsetToCommit,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, MemberId, Offset, TopicName
from tests.unit.coordination.groups.core.conversation import (
    AT_ONCE,
    GROUP,
    SESSION_TIMEOUT_MS,
    Conversation,
    commit_request,
    partition,
    protocols,
    subscription,
)

RETENTION_MS = AT_ONCE.offsets_retention_ms
CHECK_INTERVAL_MS = AT_ONCE.offsets_retention_check_interval_ms


def test_commit_is_answered_and_seen_only_when_it_is_in_the_log() -> None:
    talk = Conversation(log_commits=False)

    commit = talk.send(commit_request(42))
    assert talk.is_waiting(commit)
    assert talk.committed_offset() is None
    talk.commit()
    assert talk.reply(commit, CommitOffsetsResult).errors == {partition(): ErrorCode.NONE}
    assert talk.committed_offset() == 42


@pytest.mark.parametrize(
    ("append_error", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_TIMESTAMP),
    ],
)
def test_commit_that_the_log_refuses_is_refused_in_words_of_a_coordinator(
    append_error: ErrorCode, told: ErrorCode
) -> None:
    talk = Conversation(log_commits=False)
    commit = talk.send(commit_request(42))

    talk.fail_append(append_error)
    assert talk.reply(commit, CommitOffsetsResult).errors == {partition(): told}
    assert talk.committed_offset() is None


def test_fetch_tells_what_was_committed_and_nothing_else() -> None:
    talk = Conversation()
    offsets = (
        OffsetToCommit(topic_partition=partition("a"), offset=Offset(1), leader_epoch=LeaderEpoch(3), metadata="note"),
        OffsetToCommit(topic_partition=partition("b"), offset=Offset(2), leader_epoch=LeaderEpoch(-1), metadata=""),
    )
    talk.send(msgspec.structs.replace(commit_request(0), offsets=offsets))

    some = talk.ask(FetchOffsets(group_id=GROUP, topic_partitions=(partition("a"), partition("c"))), FetchOffsetsResult)
    assert {key: (value.offset, value.leader_epoch, value.metadata) for key, value in some.offsets.items()} == {
        partition("a"): (1, 3, "note")
    }
    everything = talk.ask(FetchOffsets(group_id=GROUP, topic_partitions=None), FetchOffsetsResult)
    assert set(everything.offsets) == {partition("a"), partition("b")}
    nothing = talk.ask(FetchOffsets(group_id=GroupId("other"), topic_partitions=None), FetchOffsetsResult)
    assert nothing == FetchOffsetsResult()


def test_offset_with_too_much_metadata_is_refused_and_the_others_are_kept() -> None:
    talk = Conversation()
    big = OffsetToCommit(
        topic_partition=partition("big"), offset=Offset(1), leader_epoch=LeaderEpoch(-1), metadata="ü" * 2_049
    )
    command = commit_request(7)
    command = msgspec.structs.replace(command, offsets=(big, *command.offsets))

    assert talk.ask(command, CommitOffsetsResult).errors == {
        partition("big"): ErrorCode.OFFSET_METADATA_TOO_LARGE,
        partition(): ErrorCode.NONE,
    }
    assert talk.committed_offset("big") is None
    assert talk.committed_offset() == 7
    only_big = msgspec.structs.replace(command, offsets=(big,))
    assert talk.ask(only_big, CommitOffsetsResult).errors == {partition("big"): ErrorCode.OFFSET_METADATA_TOO_LARGE}


def test_member_commits_while_stable_and_while_others_still_join() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)

    assert talk.commit_offset(1, member.member_id, member.generation) is ErrorCode.NONE
    talk.new_member()
    assert talk.commit_offset(2, member.member_id, member.generation) is ErrorCode.NONE


def test_commit_counts_as_a_sign_of_life() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)

    talk.advance(SESSION_TIMEOUT_MS - 1)
    talk.commit_offset(1, member.member_id, member.generation)
    talk.advance(SESSION_TIMEOUT_MS - 1)
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE


def test_member_without_an_assignment_cannot_commit() -> None:
    talk = Conversation()
    leader, _ = talk.joined_group(size=2)

    assert talk.commit_offset(1, leader.member_id, leader.generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_zombie_of_an_old_generation_cannot_commit() -> None:
    talk = Conversation()
    [zombie] = talk.stable_group(size=1)
    assert talk.commit_offset(10, zombie.member_id, zombie.generation) is ErrorCode.NONE
    talk.advance(SESSION_TIMEOUT_MS)
    heir, join = talk.new_member()
    talk.sync(talk.joined(join))

    assert talk.commit_offset(20, heir, talk.joined(join).generation) is ErrorCode.NONE
    assert talk.commit_offset(11, zombie.member_id, zombie.generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.commit_offset(12, heir, zombie.generation) is ErrorCode.ILLEGAL_GENERATION
    assert talk.committed_offset() == 20


def test_generation_of_a_group_that_is_gone_cannot_commit() -> None:
    talk = Conversation()

    assert talk.commit_offset(1, MemberId("ghost"), generation=3) is ErrorCode.ILLEGAL_GENERATION
    [member] = talk.stable_group(size=1)
    talk.leave(member.member_id)
    assert talk.commit_offset(1, member.member_id, member.generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_simple_consumer_commits_to_an_empty_group_but_not_among_members() -> None:
    talk = Conversation()
    assert talk.commit_offset(1) is ErrorCode.NONE
    [member] = talk.stable_group(size=1)

    assert talk.commit_offset(2) is ErrorCode.UNKNOWN_MEMBER_ID
    talk.leave(member.member_id)
    assert talk.commit_offset(3) is ErrorCode.NONE
    assert talk.committed_offset() == 3


def delete_offsets(talk: Conversation, *topics: str) -> DeleteOffsetsResult:
    partitions = tuple(partition(topic) for topic in topics)
    return talk.ask(DeleteOffsets(group_id=GROUP, topic_partitions=partitions), DeleteOffsetsResult)


def test_offsets_of_topics_that_members_read_cannot_be_deleted() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    for topic in ("orders", "other"):
        talk.commit_offset(5, member.member_id, member.generation, topic)

    assert delete_offsets(talk, "orders", "other", "never").errors == {
        partition("orders"): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        partition("other"): ErrorCode.NONE,
        partition("never"): ErrorCode.NONE,
    }
    assert talk.committed_offset("orders") == 5
    assert talk.committed_offset("other") is None


def test_where_the_subscription_cannot_be_read_every_topic_counts_as_subscribed() -> None:
    talk = Conversation()
    joined = talk.joined(talk.join(require_known_member_id=False, protocols=protocols("range", metadata=b"?")))
    talk.sync(joined)

    assert delete_offsets(talk, "orders").errors == {partition(): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_an_empty_group_can_be_deleted() -> None:
    talk = Conversation()
    talk.commit_offset(5)

    assert delete_offsets(talk, "orders").errors == {partition(): ErrorCode.NONE}
    assert talk.committed_offset() is None


def test_offsets_of_a_missing_group_cannot_be_deleted() -> None:
    assert delete_offsets(Conversation(), "orders").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_under_members_of_another_protocol_cannot_be_deleted() -> None:
    talk = Conversation()
    joined = talk.joined(talk.join(require_known_member_id=False, protocol_type="connect"))
    talk.sync(joined)

    assert delete_offsets(talk, "orders").error is ErrorCode.NON_EMPTY_GROUP


def delete_group(talk: Conversation) -> ErrorCode:
    return talk.ask(DeleteGroup(group_id=GROUP), DeleteGroupResult).error


def test_only_a_group_without_members_can_be_deleted() -> None:
    talk = Conversation()
    assert delete_group(talk) is ErrorCode.GROUP_ID_NOT_FOUND
    [member] = talk.stable_group(size=1)
    talk.commit_offset(1, member.member_id, member.generation)
    assert delete_group(talk) is ErrorCode.NON_EMPTY_GROUP
    talk.leave(member.member_id)

    assert delete_group(talk) is ErrorCode.NONE
    assert talk.committed_offset() is None
    assert delete_group(talk) is ErrorCode.GROUP_ID_NOT_FOUND
    talk.restart()
    assert delete_group(talk) is ErrorCode.GROUP_ID_NOT_FOUND


def test_group_with_many_offsets_is_deleted_in_batches_that_the_log_takes() -> None:
    talk = Conversation()
    for number in range(1_000):
        talk.send(commit_request(1, topic=f"topic-{number}"))
    talk.log_commits = False

    deletion = talk.send(DeleteGroup(group_id=GROUP))

    assert max(len(append.records) for append in talk.uncommitted) <= 250
    last = talk.uncommitted.pop()
    talk.commit()
    assert talk.is_waiting(deletion)
    talk.uncommitted.append(last)
    talk.commit()
    assert talk.reply(deletion, DeleteGroupResult).error is ErrorCode.NONE
    talk.restart()
    assert delete_group(talk) is ErrorCode.GROUP_ID_NOT_FOUND


def test_commit_that_is_not_yet_in_the_log_is_deleted_with_the_group() -> None:
    talk = Conversation(log_commits=False)
    talk.send(commit_request(1))
    talk.send(DeleteGroup(group_id=GROUP))

    talk.commit()
    assert talk.committed_offset() is None
    talk.restart()
    assert talk.committed_offset() is None


def test_member_that_comes_back_while_its_group_is_deleted_finds_a_working_group() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    talk.leave(member.member_id)
    talk.log_commits = False
    deletion = talk.send(DeleteGroup(group_id=GROUP))
    returned, join = talk.new_member()
    sync = talk.sync(talk.joined(join), {returned: b"all"})

    talk.commit()
    assert not talk.is_waiting(deletion)
    assert not talk.is_waiting(sync)
    talk.log_commits = True
    talk.restart()
    assert talk.heartbeat(returned, talk.joined(join).generation) is ErrorCode.NONE


def test_group_that_was_used_again_while_it_was_deleted_goes_on_counting() -> None:
    talk = Conversation()
    [member] = talk.stable_group(size=1)
    talk.leave(member.member_id)
    talk.log_commits = False
    talk.send(DeleteGroup(group_id=GROUP))
    returned, join = talk.new_member()
    talk.leave(returned)

    talk.commit()
    _, next_join = talk.new_member()
    assert talk.joined(next_join).generation > talk.joined(join).generation


def test_offsets_of_deleted_topics_are_forgotten() -> None:
    talk = Conversation()
    for topic in ("orders", "other"):
        talk.commit_offset(5, topic=topic)

    forget = ForgetTopics(topics=frozenset({TopicName("orders")}))
    assert talk.ask(forget, ForgetTopicsResult).error is ErrorCode.NONE
    assert talk.ask(forget, ForgetTopicsResult).error is ErrorCode.NONE
    assert talk.committed_offset("orders") is None
    assert talk.committed_offset("other") == 5


def group_state(talk: Conversation) -> GroupState:
    return talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).state


def test_offset_of_a_simple_consumer_expires_after_its_commit() -> None:
    talk = Conversation()
    talk.commit_offset(1)

    talk.advance(RETENTION_MS - 1)
    assert talk.committed_offset() == 1
    talk.advance(CHECK_INTERVAL_MS + 1)
    assert talk.committed_offset() is None
    assert group_state(talk) is GroupState.DEAD
    talk.restart()
    assert talk.committed_offset() is None


def keep_alive(talk: Conversation, member_id: MemberId, generation: int, for_ms: int) -> None:
    for _ in range(for_ms // 1_700_000 + 1):
        talk.advance(1_700_000)
        talk.heartbeat(member_id, generation)


def long_lived_member(talk: Conversation, topics: bytes = subscription("orders")) -> tuple[MemberId, int]:
    joined = talk.joined(
        talk.join(
            require_known_member_id=False, session_timeout_ms=1_800_000, protocols=protocols("range", metadata=topics)
        )
    )
    talk.sync(joined)
    return joined.member_id, joined.generation


def test_offset_of_a_live_group_does_not_expire_while_its_topic_is_subscribed() -> None:
    talk = Conversation()
    member_id, generation = long_lived_member(talk)
    for topic in ("orders", "other"):
        talk.commit_offset(1, member_id, generation, topic)

    keep_alive(talk, member_id, generation, RETENTION_MS + CHECK_INTERVAL_MS)
    assert talk.committed_offset("orders") == 1
    assert talk.committed_offset("other") is None


@pytest.mark.parametrize("change", [{"protocol_type": "connect"}, {"protocols": protocols("range", metadata=b"?")}])
def test_nothing_expires_where_it_is_unknown_what_members_read(change: dict[str, object]) -> None:
    talk = Conversation()
    joined = talk.joined(talk.join(require_known_member_id=False, session_timeout_ms=1_800_000, **change))
    talk.sync(joined)
    talk.commit_offset(1, joined.member_id, joined.generation)

    keep_alive(talk, joined.member_id, joined.generation, RETENTION_MS + CHECK_INTERVAL_MS)
    assert talk.committed_offset() == 1


def test_offset_of_an_empty_group_expires_after_the_last_member_left() -> None:
    talk = Conversation()
    member_id, generation = long_lived_member(talk)
    talk.commit_offset(1, member_id, generation)
    keep_alive(talk, member_id, generation, RETENTION_MS)
    talk.leave(member_id)

    talk.advance(RETENTION_MS - 1)
    assert talk.committed_offset() == 1
    talk.restart()
    talk.advance(CHECK_INTERVAL_MS + 1)
    assert talk.committed_offset() is None
    assert group_state(talk) is GroupState.DEAD


def test_offset_that_an_administrator_reset_in_an_empty_group_starts_its_retention_anew() -> None:
    talk = Conversation()
    member_id, generation = long_lived_member(talk)
    talk.commit_offset(1, member_id, generation)
    talk.leave(member_id)
    talk.advance(RETENTION_MS - 1)

    talk.commit_offset(9)
    talk.advance(CHECK_INTERVAL_MS * 2)
    assert talk.committed_offset() == 9


def test_retention_that_an_old_client_asked_for_is_kept() -> None:
    talk = Conversation()
    talk.send(msgspec.structs.replace(commit_request(1), retention_time_ms=CHECK_INTERVAL_MS * 3))

    talk.advance(CHECK_INTERVAL_MS * 2)
    assert talk.committed_offset() == 1
    talk.advance(CHECK_INTERVAL_MS)
    assert talk.committed_offset() is None


@pytest.mark.parametrize("retention_time_ms", [2**63 - 1, -(2**63), -2], ids=["longest", "shortest", "negative"])
def test_any_retention_that_an_old_client_asks_for_can_be_written(retention_time_ms: int) -> None:
    talk = Conversation()
    talk.send(msgspec.structs.replace(commit_request(1), retention_time_ms=retention_time_ms))

    talk.advance(CHECK_INTERVAL_MS)
    assert talk.committed_offset() == (1 if retention_time_ms > 0 else None)


def test_offset_that_is_being_committed_again_does_not_expire() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=CHECK_INTERVAL_MS))
    talk.commit_offset(1)
    talk.log_commits = False
    talk.send(commit_request(2))

    talk.advance(CHECK_INTERVAL_MS)
    talk.commit()
    assert talk.committed_offset() == 2


def test_expiry_is_tried_again_when_the_log_refuses_the_tombstones() -> None:
    talk = Conversation(GroupConfig(initial_rebalance_delay_ms=0, offsets_retention_ms=CHECK_INTERVAL_MS))
    talk.commit_offset(1)
    talk.log_commits = False
    talk.advance(CHECK_INTERVAL_MS)
    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.committed_offset() == 1

    talk.advance(CHECK_INTERVAL_MS)
    talk.commit()
    assert talk.committed_offset() is None


def test_group_that_never_got_anywhere_is_forgotten() -> None:
    talk = Conversation()
    talk.join(NO_MEMBER_ID)
    assert group_state(talk) is GroupState.EMPTY

    talk.advance(CHECK_INTERVAL_MS)
    assert group_state(talk) is GroupState.DEAD
    assert talk.log == []
