"""Groups that change their protocol while they run: nobody loses offsets, and no partition has two owners."""

from quorate.coordination.groups.core.classic_protocol import GroupProtocol, GroupState
from quorate.coordination.groups.core.commands import (
    NO_MEMBER_ID,
    DescribeGroup,
    DescribeGroupResult,
    GroupHeartbeat,
    GroupHeartbeatResult,
    JoinGroupResult,
    SyncGroupResult,
)
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig, MigrationPolicy
from quorate.coordination.groups.core.consumer.commands import LEAVE_EPOCH
from quorate.coordination.groups.core.consumer.embedded_protocol import read_assignment
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, Partitions
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId, TopicName
from quorate.protocol.codec import encode_versioned
from quorate.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from quorate.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from quorate.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from tests.unit.coordination.groups.core.consumer.talk import (
    ConsumerConversation,
    FakeTopics,
    TalkingConsumer,
    heartbeat,
)
from tests.unit.coordination.groups.core.conversation import GROUP, SESSION_TIMEOUT_MS


class ClassicConsumer:
    """A cooperative consumer of the classic protocol: rejoins when told, with what it owns in its subscription."""

    def __init__(self, talk: ConsumerConversation, instance: str | None = None) -> None:
        self._talk = talk
        self.instance = instance
        self.member_id = NO_MEMBER_ID
        self.generation = -1
        self.owned: Partitions = NO_PARTITIONS

    def subscription(self) -> tuple[GroupProtocol, ...]:
        owned = [OwnedTopic(topic="orders", partitions=sorted(partition.partition for partition in self.owned))]
        message = ConsumerProtocolSubscription(topics=["orders"], owned_partitions=owned if self.owned else [])
        return (GroupProtocol(name="cooperative-sticky", metadata=encode_versioned(message, 1)),)

    def join(self) -> JoinGroupResult:
        for _ in range(2):
            token = self._talk.join(self.member_id, protocols=self.subscription(), group_instance_id=self.instance)
            joined = self._talk.joined(token)
            self.member_id = joined.member_id
            if joined.error is not ErrorCode.MEMBER_ID_REQUIRED:
                break
        self.generation = joined.generation
        return joined

    def sync(self, assignments: dict[MemberId, bytes] | None = None) -> ErrorCode:
        joined = JoinGroupResult(member_id=self.member_id, generation=self.generation)
        result = self._talk.reply(self._talk.sync(joined, assignments, self.instance), SyncGroupResult)
        if result.error is ErrorCode.NONE:
            self.owned = read_assignment(result.assignment, self._talk.topics)
        return result.error

    def beat(self) -> ErrorCode:
        command = GroupHeartbeat(
            group_id=GROUP, generation=self.generation, member_id=self.member_id, group_instance_id=self.instance
        )
        error = self._talk.ask(command, GroupHeartbeatResult).error
        if error is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()
        return error


def assignment(*indexes: int) -> bytes:
    assigned = [TopicPartition(topic="orders", partitions=indexes)]
    return encode_versioned(ConsumerProtocolAssignment(assigned_partitions=assigned), 1)


def classic_group(talk: ConsumerConversation) -> ClassicConsumer:
    """One classic member that owns everything."""
    member = ClassicConsumer(talk)
    joined = member.join()
    assert joined.leader == member.member_id
    assert member.sync({member.member_id: assignment(0, 1, 2, 3)}) is ErrorCode.NONE
    return member


def test_classic_group_becomes_a_consumer_group_when_a_new_member_joins() -> None:
    talk = ConsumerConversation()
    old = classic_group(talk)
    talk.commit_offset(7, old.member_id, old.generation)

    new = talk.consumer("new")
    new.beat()
    assert new.owned == NO_PARTITIONS, "the classic member has not given anything up yet"
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert len(old.owned) == 2
    assert not new.beat().assignment, "what was revoked is still in the classic member's hands"
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS, "it joins again to say that it has revoked"
    new.beat()
    assert new.owned == talk.topics.partitions("orders") - old.owned
    assert old.beat() is ErrorCode.NONE

    assert talk.committed_offset() == 7
    assert talk.commit_offset(8, old.member_id, old.generation) is ErrorCode.NONE
    assert talk.commit_offset(9, old.member_id, old.generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert {member.is_classic for member in talk.describe().members} == {True, False}


def test_group_becomes_classic_again_when_the_last_new_member_leaves() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    for _ in range(3):
        new.beat()
        old.beat()
    talk.commit_offset(7, old.member_id, old.generation)

    talk.beat("new", LEAVE_EPOCH)
    assert talk.describe().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.heartbeat(old.member_id, old.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert old.join().leader == old.member_id
    assert old.sync({old.member_id: assignment(0, 1, 2, 3)}) is ErrorCode.NONE
    assert old.owned == talk.topics.partitions("orders")
    assert talk.committed_offset() == 7
    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).state is GroupState.STABLE


def test_group_becomes_classic_again_when_the_last_new_member_is_not_heard_of() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    for _ in range(3):
        new.beat()
        old.beat()

    for _ in range(8):
        talk.advance(SESSION_TIMEOUT_MS - 1)
        old.beat()
    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).error is ErrorCode.NONE


def test_coordinator_that_takes_over_amid_a_migration_knows_both_kinds_of_members() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    new.beat()
    talk.restart()

    for _ in range(3):
        old.beat()
        new.beat()
    assert {len(old.owned), len(new.owned)} == {2}
    assert old.owned.isdisjoint(new.owned)
    talk.beat("new", LEAVE_EPOCH)
    talk.restart()
    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).error is ErrorCode.NONE
    assert talk.describe().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_waiting_classic_members_are_told_to_join_again() -> None:
    talk = ConsumerConversation()
    leader = classic_group(talk)
    second = ClassicConsumer(talk)
    second.member_id = talk.joined(talk.join(protocols=second.subscription())).member_id
    parked = talk.join(second.member_id, protocols=second.subscription())
    assert talk.is_waiting(parked)

    talk.beat("new", 0)
    assert talk.joined(parked).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert second.join().error is ErrorCode.NONE
    assert second.sync() is ErrorCode.NONE
    assert leader.beat() is ErrorCode.REBALANCE_IN_PROGRESS


def test_classic_member_joins_a_consumer_group_that_has_members() -> None:
    talk = ConsumerConversation()
    new = talk.consumer("new")
    new.beat()

    old = ClassicConsumer(talk)
    joined = old.join()
    assert (joined.error, joined.leader, joined.generation) == (ErrorCode.NONE, NO_MEMBER_ID, 2)
    assert old.sync() is ErrorCode.NONE
    assert old.owned == NO_PARTITIONS
    new.beat()
    new.beat()
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    assert old.owned == talk.topics.partitions("orders") - new.owned
    assert talk.leave(old.member_id) is ErrorCode.NONE
    new.beat()
    assert new.owned == talk.topics.partitions("orders")


def test_classic_member_that_does_not_join_again_in_time_is_removed() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    new.beat()
    command = GroupHeartbeat(group_id=GROUP, generation=old.generation, member_id=old.member_id, group_instance_id=None)
    results = []
    for _ in range(8):
        results.append(talk.ask(command, GroupHeartbeatResult).error)
        talk.advance(SESSION_TIMEOUT_MS - 1)
        new.beat()

    assert results[0] is ErrorCode.REBALANCE_IN_PROGRESS
    assert results[-1] is ErrorCode.UNKNOWN_MEMBER_ID
    assert new.owned == talk.topics.partitions("orders")


def test_classic_member_that_changes_the_protocol_under_its_member_id_is_not_waited_for_any_more() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    new.beat()
    command = GroupHeartbeat(group_id=GROUP, generation=old.generation, member_id=old.member_id, group_instance_id=None)
    assert talk.ask(command, GroupHeartbeatResult).error is ErrorCode.REBALANCE_IN_PROGRESS

    changed = talk.consumer(old.member_id)
    for _ in range(8):
        assert changed.beat().error is ErrorCode.NONE
        new.beat()
        talk.advance(SESSION_TIMEOUT_MS - 1)

    assert (len(changed.owned), len(new.owned)) == (2, 2)
    assert {member.is_classic for member in talk.describe().members} == {False}


def test_static_instance_moves_from_the_classic_protocol_to_the_new_one() -> None:
    talk = ConsumerConversation()
    old = ClassicConsumer(talk, instance="one")
    old.join()
    old.sync({old.member_id: assignment(0, 1, 2, 3)})

    new = talk.consumer("new", instance_id="one")
    new.beat()
    assert new.owned == talk.topics.partitions("orders")
    command = GroupHeartbeat(
        group_id=GROUP, generation=old.generation, member_id=old.member_id, group_instance_id="one"
    )
    assert talk.ask(command, GroupHeartbeatResult).error is ErrorCode.FENCED_INSTANCE_ID


def test_static_instance_moves_back_and_the_group_with_it() -> None:
    talk = ConsumerConversation()
    new = talk.consumer("new", instance_id="one")
    new.beat()

    old = ClassicConsumer(talk, instance="one")
    assert old.join().error is ErrorCode.REBALANCE_IN_PROGRESS
    assert old.join().error is ErrorCode.NONE
    assert talk.ask(DescribeGroup(group_id=GROUP), DescribeGroupResult).error is ErrorCode.NONE


def test_empty_groups_change_their_protocol_with_whoever_comes() -> None:
    talk = ConsumerConversation()
    old = classic_group(talk)
    talk.commit_offset(7, old.member_id, old.generation)
    talk.leave(old.member_id)

    assert talk.beat("new", 0).assignment == talk.topics.partitions("orders")
    talk.beat("new", LEAVE_EPOCH)
    old = classic_group(talk)
    assert old.owned == talk.topics.partitions("orders")
    assert talk.committed_offset() == 7
    talk.restart()
    assert talk.describe().error is ErrorCode.GROUP_ID_NOT_FOUND
    assert old.beat() is ErrorCode.NONE


def test_policy_forbids_the_way_there_and_the_way_back() -> None:
    disabled = ConsumerGroupSettings(migration_policy=MigrationPolicy.DISABLED)
    talk = ConsumerConversation(config=GroupConfig(initial_rebalance_delay_ms=0, consumer=disabled))
    classic_group(talk)
    assert talk.beat("new", 0).error is ErrorCode.GROUP_ID_NOT_FOUND

    one_way = ConsumerGroupSettings(migration_policy=MigrationPolicy.UPGRADE)
    talk = ConsumerConversation(config=GroupConfig(initial_rebalance_delay_ms=0, consumer=one_way))
    classic_group(talk)
    talk.beat("new", 0)
    talk.beat("new", LEAVE_EPOCH)
    assert talk.describe().error is ErrorCode.NONE


def test_group_of_another_protocol_or_a_custom_assignor_stays_classic() -> None:
    talk = ConsumerConversation()
    connect = (GroupProtocol(name="default", metadata=b"x"),)
    member_id = talk.joined(talk.join(protocol_type="connect", protocols=connect)).member_id
    talk.join(member_id, protocol_type="connect", protocols=connect)
    assert talk.beat("new", 0).error is ErrorCode.GROUP_ID_NOT_FOUND

    talk = ConsumerConversation()
    member = ClassicConsumer(talk)
    member.join()
    custom = encode_versioned(ConsumerProtocolAssignment(user_data=b"mine"), 1)
    talk.sync(JoinGroupResult(member_id=member.member_id, generation=member.generation), {member.member_id: custom})
    assert talk.beat("new", 0).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert talk.heartbeat(member.member_id, member.generation) is ErrorCode.NONE


def test_failed_upgrade_leaves_the_classic_group() -> None:
    talk = ConsumerConversation()
    old = classic_group(talk)
    talk.log_commits = False
    talk.send(heartbeat("new", 0))
    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.log_commits = True

    assert old.beat() is ErrorCode.NONE
    assert talk.describe().error is ErrorCode.GROUP_ID_NOT_FOUND


def test_failed_downgrade_leaves_the_consumer_group() -> None:
    talk = ConsumerConversation()
    old, new = classic_group(talk), talk.consumer("new")
    for _ in range(3):
        new.beat()
        old.beat()
    talk.log_commits = False
    token = talk.send(heartbeat("new", LEAVE_EPOCH))
    talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
    talk.log_commits = True
    talk.commit()

    assert talk.replies[token].error is ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[union-attr]
    assert new.beat().error is ErrorCode.NONE
    assert old.beat() is ErrorCode.NONE
    assert len(talk.describe().members) == 2


def test_eager_members_without_owned_partitions_in_their_subscription_take_part() -> None:
    talk = ConsumerConversation(FakeTopics(orders=2))
    metadata = encode_versioned(ConsumerProtocolSubscription(topics=[TopicName("orders")]), 0)
    protocols = (GroupProtocol(name="range", metadata=metadata),)
    member_id = talk.joined(talk.join(protocols=protocols)).member_id
    first = talk.joined(talk.join(member_id, protocols=protocols))
    talk.sync(first, {member_id: assignment(0, 1)})
    talk.beat("new", 0)

    assert talk.heartbeat(member_id, first.generation) is ErrorCode.REBALANCE_IN_PROGRESS
    again = talk.joined(talk.join(member_id, protocols=protocols))
    synced = talk.reply(talk.sync(again), SyncGroupResult)
    assert len(read_assignment(synced.assignment, talk.topics)) == 1
    assert talk.beat("new", 2).assignment is not None, "an eager member has nothing left when it joins"


def test_pending_classic_member_does_not_keep_a_new_one_out() -> None:
    talk = ConsumerConversation()
    pending = ClassicConsumer(talk)
    pending.member_id = talk.joined(talk.join(protocols=pending.subscription())).member_id

    assert talk.beat("new", 0).error is ErrorCode.NONE
    assert pending.join().error is ErrorCode.NONE


def test_leave_group_is_for_classic_members_only() -> None:
    talk = ConsumerConversation()
    talk.beat("new", 0, instance_id="one")

    assert talk.leave(MemberId("new")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.leave(NO_MEMBER_ID, "one") is ErrorCode.UNKNOWN_MEMBER_ID
    assert talk.leave(NO_MEMBER_ID, "two") is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_are_replaced_one_by_one_and_no_partition_ever_has_two_owners() -> None:
    talk = ConsumerConversation(FakeTopics(orders=6))
    old = [ClassicConsumer(talk) for _ in range(3)]
    tokens = []
    for member in old:
        member.member_id = talk.joined(talk.join(protocols=member.subscription())).member_id
        tokens.append(talk.join(member.member_id, protocols=member.subscription()))
    tokens[0] = talk.join(old[0].member_id, protocols=old[0].subscription())
    shares = {member.member_id: assignment(2 * index, 2 * index + 1) for index, member in enumerate(old)}
    for member, token in zip(old, tokens, strict=True):
        member.generation = talk.joined(token).generation
        assert member.sync(shares) is ErrorCode.NONE
    new: list[TalkingConsumer] = []

    def everybody_beats() -> None:
        everybody: list[ClassicConsumer | TalkingConsumer] = [*old, *new]
        for consumer in everybody:
            consumer.beat()
            held = [partition for each in everybody for partition in each.owned]
            assert len(held) == len(set(held)), "two owners"

    for number in range(3):
        new.append(talk.consumer(f"new-{number}"))
        for _ in range(4):
            everybody_beats()
        talk.leave(old.pop().member_id)
        for _ in range(4):
            everybody_beats()
        if number == 1:
            talk.restart()
    assert frozenset().union(*(each.owned for each in new)) == talk.topics.partitions("orders")
    assert {member.is_classic for member in talk.describe().members} == {False}
