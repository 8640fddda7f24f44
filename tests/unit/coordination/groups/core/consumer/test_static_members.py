"""Static members of consumer groups: their instance id outlives the process, and their partitions wait for it."""

from quorate.coordination.groups.core.config import ConsumerGroupSettings
from quorate.coordination.groups.core.consumer.commands import LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS
from quorate.kernel.errors import ErrorCode
from tests.unit.coordination.groups.core.consumer.talk import ConsumerConversation, settle

SESSION_TIMEOUT_MS = ConsumerGroupSettings().session_timeout_ms


def test_partitions_wait_for_an_instance_that_is_away_for_a_while() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", instance_id="one"), talk.consumer("b")
    settle([a, b])
    epoch = talk.describe().epoch

    assert talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one").member_epoch == LEAVE_FOR_A_WHILE_EPOCH
    b.beat()
    assert len(b.owned) == 2
    next_process = talk.consumer("a-again", instance_id="one")
    next_process.beat()
    assert next_process.owned == a.owned
    assert talk.describe().epoch == epoch, "nobody else had to move"


def test_instance_that_was_away_comes_back_under_its_own_member_id() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", instance_id="one"), talk.consumer("b")
    settle([a, b])
    epoch = talk.describe().epoch
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")

    again = talk.consumer("a", instance_id="one")
    again.beat()

    assert again.owned == a.owned
    assert talk.describe().epoch == epoch, "nobody else had to move"
    again.beat()
    assert talk.beat("a", LEAVE_EPOCH, instance_id="one").error is ErrorCode.NONE


def test_only_the_instance_itself_comes_back_under_its_member_id() -> None:
    talk = ConsumerConversation()
    talk.consumer("a", instance_id="one").beat()
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")

    assert talk.beat("a", 0).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("a", 0, instance_id="two").error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("a", 0, instance_id="one").error is ErrorCode.NONE


def test_instance_that_comes_with_epoch_0_again_joins_and_another_in_its_name_does_not() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", instance_id="one"), talk.consumer("b")
    settle([a, b])
    assert a.epoch > 1

    assert talk.beat("a", 0).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert talk.beat("a", 0, instance_id="two").error is ErrorCode.FENCED_MEMBER_EPOCH
    again = talk.beat("a", 0, instance_id="one")
    assert (again.error, again.member_epoch, again.assignment) == (ErrorCode.NONE, a.epoch, a.owned)


def test_member_becomes_an_instance_when_it_joins_again_with_an_instance_id() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a"), talk.consumer("b")
    settle([a, b])

    assert talk.beat("a", 0, instance_id="one").assignment == a.owned
    assert talk.beat("c", 0, instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert talk.beat("b", 0, instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_old_process_of_an_instance_is_fenced() -> None:
    talk = ConsumerConversation()
    a = talk.consumer("a", instance_id="one")
    a.beat()
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")
    talk.consumer("a-again", instance_id="one").beat()

    assert talk.beat("a", a.epoch, instance_id="one").error is ErrorCode.FENCED_INSTANCE_ID
    assert talk.beat("a", LEAVE_EPOCH, instance_id="one").error is ErrorCode.FENCED_INSTANCE_ID


def test_instance_that_is_in_use_is_not_given_away() -> None:
    talk = ConsumerConversation()
    talk.consumer("a", instance_id="one").beat()

    assert talk.beat("b", 0, instance_id="one").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert talk.beat("a", 0, instance_id="one").error is ErrorCode.NONE, "only its answer was lost"
    assert talk.beat("b", 1, instance_id="two").error is ErrorCode.UNKNOWN_MEMBER_ID


def test_instance_that_does_not_come_back_is_removed_after_its_session() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", instance_id="one"), talk.consumer("b")
    settle([a, b])
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")

    talk.advance(SESSION_TIMEOUT_MS - 1)
    b.beat()
    talk.advance(1)
    b.beat()
    assert b.owned == talk.topics.partitions("orders")


def test_instance_that_leaves_for_good_frees_its_partitions_at_once() -> None:
    talk = ConsumerConversation()
    a, b = talk.consumer("a", instance_id="one"), talk.consumer("b")
    settle([a, b])

    talk.beat("a", LEAVE_EPOCH, instance_id="one")
    b.beat()
    assert b.owned == talk.topics.partitions("orders")


def test_instance_gets_what_the_group_has_decided_while_it_was_away() -> None:
    talk = ConsumerConversation()
    a = talk.consumer("a", instance_id="one")
    a.beat()
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")
    b = talk.consumer("b")
    b.beat()
    assert b.owned == NO_PARTITIONS, "what the absent instance holds is not free"

    next_process = talk.consumer("a-again", instance_id="one")
    settle([next_process, b], 2)
    assert {len(next_process.owned), len(b.owned)} == {2}
    assert next_process.owned.isdisjoint(b.owned)


def test_coordinator_that_takes_over_knows_who_is_away() -> None:
    talk = ConsumerConversation()
    a = talk.consumer("a", instance_id="one")
    a.beat()
    talk.beat("a", LEAVE_FOR_A_WHILE_EPOCH, instance_id="one")

    talk.restart()
    next_process = talk.consumer("a-again", instance_id="one")
    next_process.beat()
    assert next_process.owned == a.owned
