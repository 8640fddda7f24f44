"""ConsumerGroupHeartbeat: members join, share, revoke before others are given, and are fenced."""

import pytest

from quorate.coordination.groups.core.commands import DescribeGroup, DescribeGroupResult, ListGroups, ListGroupsResult
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig
from quorate.coordination.groups.core.consumer.commands import LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from quorate.coordination.groups.core.consumer.group import ConsumerGroupState
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS
from quorate.coordination.groups.core.effects import GroupSettingsChanged
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import PartitionIndex, TopicName
from tests.unit.coordination.groups.core.consumer.talk import ConsumerConversation, FakeTopics, heartbeat, settle
from tests.unit.coordination.groups.core.conversation import GROUP, REBALANCE_TIMEOUT_MS

SESSION_TIMEOUT_MS = ConsumerGroupSettings().session_timeout_ms


def test_first_member_gets_everything_at_once() -> None:
    talk = ConsumerConversation()

    joined = talk.beat("a", 0)
    assert (joined.error, joined.member_epoch, joined.member_id) == (ErrorCode.NONE, 1, "a")
    assert joined.assignment == talk.topics.partitions("orders")
    assert joined.heartbeat_interval_ms == 5_000
    assert talk.describe().state is ConsumerGroupState.STABLE


def test_second_member_gets_partitions_only_after_the_first_has_given_them_up() -> None:
    talk = ConsumerConversation()
    everything = talk.topics.partitions("orders")
    talk.beat("a", 0)

    waiting = talk.beat("b", 0)
    assert (waiting.member_epoch, waiting.assignment) == (2, NO_PARTITIONS)
    told = talk.beat("a", 1, owned=everything)
    assert told.member_epoch == 1, "a member that must revoke keeps its epoch"
    assert told.assignment is not None
    assert len(told.assignment) == 2
    assert talk.beat("b", 2).assignment is None, "nothing was released yet"
    assert talk.describe().state is ConsumerGroupState.RECONCILING

    assert talk.beat("a", 1, owned=told.assignment).member_epoch == 2
    assert talk.beat("b", 2).assignment == everything - told.assignment
    assert talk.describe().state is ConsumerGroupState.STABLE


def test_heartbeat_that_says_nothing_of_partitions_gives_none_up() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    talk.beat("b", 0)

    talk.beat("a", 1)
    assert talk.beat("a", 1).member_epoch == 1
    assert talk.beat("b", 2).assignment is None


def test_answer_is_not_given_before_what_it_shows_is_durable() -> None:
    talk = ConsumerConversation(log_commits=False)

    first = talk.send(heartbeat("a", 0))
    again = talk.send(heartbeat("a", 0))
    assert talk.is_waiting(first)
    assert talk.is_waiting(again), "the repeated heartbeat shows what the first one has changed"
    assert talk.describe().error is ErrorCode.GROUP_ID_NOT_FOUND
    talk.commit()
    assert not talk.is_waiting(first)
    assert not talk.is_waiting(again)


def test_lost_answer_of_a_join_is_given_again() -> None:
    talk = ConsumerConversation()
    lost = talk.beat("a", 0)

    assert talk.beat("a", 0) == lost


def test_member_with_its_previous_epoch_is_let_in_if_it_owns_nothing_it_should_not() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)
    mine = talk.topics.partitions("orders")
    talk.topics.set("orders", 5)
    assert talk.beat("a", 1, owned=mine).member_epoch == 2

    assert talk.beat("a", 1, owned=mine).member_epoch == 2
    others = frozenset({min(mine)._replace(partition=PartitionIndex(9))})
    assert talk.beat("a", 1, owned=others).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH


@pytest.mark.parametrize("epoch", [2, 99])
def test_member_with_an_epoch_that_it_was_never_given_is_fenced(epoch: int) -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)

    assert talk.beat("a", epoch).error is ErrorCode.FENCED_MEMBER_EPOCH


def test_member_that_comes_with_epoch_0_again_joins_at_once() -> None:
    """A fenced member starts anew under its own member id; it must not wait until its session has ended."""
    talk = ConsumerConversation()
    a = talk.consumer("a")
    a.beat()
    for count in (5, 6, 7):
        talk.topics.set("orders", count)
        a.beat()
    assert a.epoch == 4
    assert talk.beat("a", 99).error is ErrorCode.FENCED_MEMBER_EPOCH

    again = talk.beat("a", 0)

    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 4)
    assert again.assignment == talk.topics.partitions("orders")
    assert talk.describe().epoch == 4, "nothing has changed for the group"


def test_member_that_joins_again_while_it_has_to_revoke_has_revoked() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a])
    b.beat()
    assert a.beat().member_epoch == 1, "it has to give up what b is to have"

    again = talk.beat("a", 0)

    assert (again.error, again.member_epoch) == (ErrorCode.NONE, 2)
    assert again.assignment is not None
    b.beat()
    assert b.owned == talk.topics.partitions("orders") - again.assignment
    assert (len(b.owned), len(again.assignment)) == (2, 2)
    for _ in range(2 * REBALANCE_TIMEOUT_MS // SESSION_TIMEOUT_MS + 1):
        talk.advance(SESSION_TIMEOUT_MS // 2)
        b.beat()
        assert talk.beat("a", 2).error is ErrorCode.NONE, "nobody waits for a revocation of it any more"


def test_member_that_joins_again_while_it_waits_for_others_goes_on_waiting() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a])
    b.beat()
    assert b.owned == NO_PARTITIONS

    again = talk.beat("b", 0)

    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.NONE, 2, NO_PARTITIONS)
    settle([a, b])
    assert a.owned | b.owned == talk.topics.partitions("orders")
    assert a.owned.isdisjoint(b.owned)


def test_member_that_joins_again_may_subscribe_to_something_else() -> None:
    talk = ConsumerConversation(FakeTopics(orders=2, payments=3))
    talk.consumer("a").beat()
    talk.topics.set("orders", 3)
    talk.beat("a", 1, owned=talk.topics.partitions("orders"))

    again = talk.beat("a", 0, topics=frozenset({TopicName("payments")}))

    assert (again.error, again.assignment) == (ErrorCode.NONE, talk.topics.partitions("payments"))


def test_strangers_are_unknown() -> None:
    talk = ConsumerConversation()
    assert talk.beat("a", 1).error is ErrorCode.GROUP_ID_NOT_FOUND
    talk.beat("a", 0)

    assert talk.beat("b", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.beat("b", LEAVE_EPOCH).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_partitions_of_a_member_that_left_go_to_those_who_stay() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a, b])
    assert {len(a.owned), len(b.owned)} == {2}

    left = talk.beat("b", LEAVE_EPOCH)
    assert (left.error, left.member_epoch) == (ErrorCode.NONE, LEAVE_EPOCH)
    a.beat()
    assert a.owned == talk.topics.partitions("orders")


def test_silent_member_loses_its_partitions_after_its_session() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a, b])
    talk.advance(SESSION_TIMEOUT_MS - 1)
    a.beat()
    assert len(a.owned) == 2

    talk.advance(1)
    a.beat()
    assert a.owned == talk.topics.partitions("orders")
    assert talk.beat("b", b.epoch).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_lives_but_does_not_revoke_is_removed_after_its_rebalance_timeout() -> None:
    talk = ConsumerConversation()
    everything = talk.topics.partitions("orders")
    talk.beat("a", 0, rebalance_timeout_ms=10_000)
    b = talk.consumer("b")
    b.beat()
    talk.beat("a", 1, owned=everything)

    talk.advance(9_999)
    talk.beat("a", 1, owned=everything)
    assert not b.owned
    talk.advance(1)
    b.beat()
    assert b.owned == everything
    assert talk.beat("a", 1, owned=everything).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_revocation_in_time_ends_the_wait_for_it() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", rebalance_timeout_ms=10_000), talk.consumer("b")
    settle([a, b])

    talk.advance(20_000)
    assert a.beat().error is ErrorCode.NONE


def test_subscription_can_change_on_the_way() -> None:
    talk = ConsumerConversation(FakeTopics(orders=2, payments=3))
    talk.beat("a", 0)

    changed = talk.beat("a", 1, topics=frozenset({TopicName("payments")}), owned=NO_PARTITIONS)
    assert changed.assignment == talk.topics.partitions("payments")


def test_new_partitions_and_topics_reach_the_group_with_the_next_heartbeat() -> None:
    talk = ConsumerConversation(FakeTopics(orders=2))
    a = talk.consumer("a", topics=frozenset({TopicName("orders"), TopicName("payments")}))
    a.beat()

    talk.topics.set("orders", 3)
    a.beat()
    assert a.owned == talk.topics.partitions("orders")
    assert len(a.owned) == 3
    talk.topics.set("payments", 1)
    a.beat()
    assert a.owned == talk.topics.partitions("orders", "payments")
    talk.topics.delete("orders")
    settle([a], 2)
    assert a.owned == talk.topics.partitions("payments")


def test_changes_of_other_topics_do_not_move_the_group() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)

    talk.topics.set("unrelated", 3)
    assert talk.beat("a", 1).member_epoch == 1
    assert talk.describe().epoch == 1


def test_pattern_finds_topics_now_and_later() -> None:
    talk = ConsumerConversation(FakeTopics(orders_eu=1, orders_us=1, payments=1))
    a = talk.consumer("a", topics=None, pattern="orders_.*")
    a.beat()
    assert a.owned == talk.topics.partitions("orders_eu", "orders_us")

    talk.topics.set("orders_ap", 2)
    a.beat()
    assert a.owned == talk.topics.partitions("orders_eu", "orders_us", "orders_ap")
    assert talk.describe().members[0].pattern == "orders_.*"
    cleared = talk.beat("a", a.epoch, pattern="", topics=frozenset({TopicName("payments")}), owned=NO_PARTITIONS)
    assert cleared.assignment == talk.topics.partitions("payments")


def test_a_pattern_is_looked_up_once_for_each_change_of_the_topics_names() -> None:
    talk = ConsumerConversation(FakeTopics(orders_eu=1))
    a = talk.consumer("a", topics=None, pattern="orders_.*")
    a.beat()
    talk.topics.set("payments", 1)  # Another name, and none that matches.
    a.beat()
    looked_up = talk.topics.lookups
    for partitions in range(2, 6):
        talk.topics.set("payments", partitions)
        a.beat()

    assert looked_up == talk.topics.lookups == 2


def test_a_pattern_that_nobody_has_looked_up_yet_keeps_the_topics_that_it_had() -> None:
    talk = ConsumerConversation(FakeTopics(orders_eu=1))
    a = talk.consumer("a", topics=None, pattern="orders_.*")
    a.beat()
    talk.topics.set("orders_us", 1)
    talk.topics.is_looked_up = False
    a.beat()
    assert a.owned == talk.topics.partitions("orders_eu")

    talk.topics.is_looked_up = True
    a.beat()

    assert a.owned == talk.topics.partitions("orders_eu", "orders_us")


def test_bad_requests_are_refused_with_what_is_wrong() -> None:
    talk = ConsumerConversation()

    bad_pattern = talk.beat("a", 0, topics=None, pattern="(")
    assert bad_pattern.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert bad_pattern.message is not None
    assert talk.beat("a", 0, server_assignor="sticky").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    for said in (
        {"rebalance_timeout_ms": None},
        {"topics": None},
        {"owned": None},
        {"owned": talk.topics.partitions("orders")},
        {"group_id": ""},
        {"instance_id": ""},
        {"rack_id": ""},
    ):
        assert talk.beat("a", 0, **said).error is ErrorCode.INVALID_REQUEST, said
    assert talk.beat("", 0).error is ErrorCode.INVALID_REQUEST
    assert talk.beat("a", -3).error is ErrorCode.INVALID_REQUEST
    assert talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH).error is ErrorCode.INVALID_REQUEST
    assert talk.log == []


def test_clients_of_version_0_are_given_an_id() -> None:
    talk = ConsumerConversation()

    joined = talk.beat("", 0, chooses_member_id=False)
    assert joined.error is ErrorCode.NONE
    assert joined.member_id


def test_full_group_takes_no_more() -> None:
    config = GroupConfig(consumer=ConsumerGroupSettings(max_group_size=1))
    talk = ConsumerConversation(config=config)
    talk.beat("a", 0)

    assert talk.beat("b", 0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert talk.beat("a", 1).error is ErrorCode.NONE


def test_members_choose_the_assignor() -> None:
    talk = ConsumerConversation(FakeTopics(orders=4))
    a, b = talk.consumer("a", server_assignor="range"), talk.consumer("b", server_assignor="range")
    settle([a, b])

    assert talk.describe().assignor == "range"
    assert sorted(partition.partition for partition in a.owned) == [0, 1]


def test_group_shows_as_a_consumer_group() -> None:
    talk = ConsumerConversation()
    talk.beat("a", 0)

    [group] = talk.ask(ListGroups(types=frozenset({"consumer"})), ListGroupsResult).groups
    assert (group.group_id, group.state, group.group_type) == (GROUP, ConsumerGroupState.STABLE, "consumer")
    assert talk.ask(ListGroups(types=frozenset({"classic"})), ListGroupsResult).groups == ()
    assert talk.ask(ListGroups(states=frozenset({"empty"})), ListGroupsResult).groups == ()
    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).error is ErrorCode.GROUP_ID_NOT_FOUND


def test_failed_append_leaves_the_group_as_it_was() -> None:
    talk = ConsumerConversation()
    a = talk.consumer("a")
    a.beat()
    talk.log_commits = False

    token = talk.send(heartbeat("b", 0))
    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    assert talk.replies[token].error is ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[union-attr]
    talk.log_commits = True
    assert a.beat().member_epoch == 1
    assert [member.member_id for member in talk.describe().members] == ["a"]


def test_failed_append_does_not_undo_one_that_is_on_its_way() -> None:
    talk = ConsumerConversation(log_commits=False)
    first = talk.send(heartbeat("a", 0))
    append = talk.uncommitted[0]
    second = talk.send(heartbeat("b", 0))
    talk.uncommitted.remove(append)
    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.uncommitted.append(append)
    talk.log_commits = True
    talk.commit()

    assert not talk.is_waiting(first)
    assert talk.replies[second].error is ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[union-attr]
    assert talk.beat("a", 1).error is ErrorCode.NONE
    assert talk.beat("b", 0).member_epoch == 2


def test_coordinator_that_takes_over_goes_on_where_the_log_ends() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a, b])
    before = talk.describe()

    talk.restart()
    assert talk.describe() == before
    assert a.beat().member_epoch == b.beat().member_epoch == before.epoch
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.describe().state is ConsumerGroupState.EMPTY


def test_coordinator_that_takes_over_still_waits_for_who_must_revoke() -> None:
    talk = ConsumerConversation()
    everything = talk.topics.partitions("orders")
    talk.beat("a", 0)
    talk.beat("b", 0)
    talk.beat("a", 1, owned=everything)

    talk.restart()
    for _ in range(2):
        talk.advance(REBALANCE_TIMEOUT_MS // 2)
        talk.beat("a", 1, owned=everything)
    assert talk.beat("a", 1, owned=everything).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_group_with_settings_of_its_own_lives_by_them() -> None:
    talk = ConsumerConversation()
    own = ConsumerGroupSettings(session_timeout_ms=100_000, heartbeat_interval_ms=7_000)
    talk.report(GroupSettingsChanged(settings={GROUP: own}))

    assert talk.beat("a", 0).heartbeat_interval_ms == 7_000
    talk.advance(99_999)
    assert talk.beat("a", 1).error is ErrorCode.NONE
    talk.report(GroupSettingsChanged(settings={}))
    talk.beat("a", 1)
    talk.advance(SESSION_TIMEOUT_MS)
    assert talk.beat("a", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
