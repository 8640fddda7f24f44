"""Random members, topics, clocks, logs and restarts against one consumer group, judged by what must always hold."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from quorate.coordination.core.effects import Token
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig
from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerGroupHeartbeatResult,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup, ConsumerGroupState
from quorate.coordination.groups.core.consumer.topics import AssignedPartition
from quorate.coordination.groups.core.records import GroupRecord, OffsetRecord, decode_record
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import MemberId, TopicName
from tests.unit.coordination.groups.core.consumer.talk import (
    ConsumerConversation,
    FakeTopics,
    TalkingConsumer,
    heartbeat,
)
from tests.unit.coordination.groups.core.conversation import GROUP

SESSION_TIMEOUT_MS = 10_000
SUBSCRIPTIONS = st.sampled_from(
    [
        {"topics": frozenset({TopicName("orders")})},
        {"topics": frozenset({TopicName("orders"), TopicName("payments")})},
        {"topics": None, "pattern": "orders|refunds"},
        {"topics": frozenset({TopicName("orders")}), "server_assignor": "range"},
    ]
)
WHICH = st.integers(0, 10)
MAX_CONSUMERS = 5


class ConsumerGroupUnderFire(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        settings = ConsumerGroupSettings(session_timeout_ms=SESSION_TIMEOUT_MS, max_group_size=4)
        config = GroupConfig(consumer=settings)
        self.talk = ConsumerConversation(FakeTopics(orders=3), config, log_commits=False)
        self.consumers: list[TalkingConsumer] = []
        self.waiting: dict[TalkingConsumer, Token] = {}
        self.names = 0

    def _collect(self) -> None:
        """Take the answers that have come."""
        for consumer, token in list(self.waiting.items()):
            if not self.talk.is_waiting(token):
                del self.waiting[consumer]
                result = self.talk.reply(token, ConsumerGroupHeartbeatResult)
                assert consumer.epoch != JOIN_EPOCH or result.error is not ErrorCode.FENCED_MEMBER_EPOCH
                consumer.hear(result)

    def _beat(self, consumer: TalkingConsumer) -> None:
        if consumer not in self.waiting:
            self.waiting[consumer] = self.talk.send(consumer.request())
            self._collect()

    def _pick(self, which: int) -> TalkingConsumer:
        return self.consumers[which % len(self.consumers)]

    def _start(self, **said: object) -> None:
        self.names += 1
        consumer = self.talk.consumer(f"consumer-{self.names}", rebalance_timeout_ms=15_000, **said)
        self.consumers.append(consumer)
        self._beat(consumer)

    @precondition(lambda self: len(self.consumers) < MAX_CONSUMERS)
    @rule(instance=st.sampled_from([None, None, "one", "two"]), subscription=SUBSCRIPTIONS)
    def consumer_starts(self, instance: str | None, subscription: dict[str, object]) -> None:
        self._start(instance_id=instance, **subscription)

    @precondition(lambda self: self.consumers)
    @rule(which=WHICH)
    def consumer_heartbeats(self, which: int) -> None:
        self._beat(self._pick(which))

    @rule(log_commits=st.booleans())
    def everybody_heartbeats(self, log_commits: bool) -> None:
        for consumer in self.consumers:
            self._beat(consumer)
        if log_commits:
            self.log_commits()

    @precondition(lambda self: self.waiting)
    @rule()
    def answers_are_lost(self) -> None:
        self.waiting.clear()

    @precondition(lambda self: self.consumers)
    @rule(which=WHICH)
    def consumer_joins_again(self, which: int) -> None:
        """It has given up everything, and starts anew under its member id without waiting for an answer."""
        consumer = self._pick(which)
        self.waiting.pop(consumer, None)
        consumer.start_anew()
        self._beat(consumer)

    @precondition(lambda self: self.consumers)
    @rule(which=WHICH)
    def consumer_is_killed(self, which: int) -> None:
        consumer = self._pick(which)
        self.consumers.remove(consumer)
        self.waiting.pop(consumer, None)

    @precondition(lambda self: self.consumers)
    @rule(which=WHICH)
    def consumer_leaves(self, which: int) -> None:
        consumer = self._pick(which)
        self.consumer_is_killed(which)
        instance = consumer.request().instance_id
        epoch = LEAVE_EPOCH if instance is None else LEAVE_FOR_A_WHILE_EPOCH
        self.talk.send(heartbeat(consumer.name, epoch, instance_id=instance))
        self._collect()

    @rule(duration_ms=st.sampled_from([1, 2_000, SESSION_TIMEOUT_MS - 1, 2 * SESSION_TIMEOUT_MS]))
    def time_passes(self, duration_ms: int) -> None:
        self.talk.advance(duration_ms)
        self._collect()

    @rule()
    def log_commits(self) -> None:
        self.talk.commit()
        self._collect()

    @precondition(lambda self: self.talk.uncommitted)
    @rule()
    def newest_append_fails(self) -> None:
        """Refused by the log at once: everything before it is on its way, nothing came after it."""
        failed = self.talk.uncommitted.pop()
        others, self.talk.uncommitted = self.talk.uncommitted, [failed]
        self.talk.fail_append(ErrorCode.NOT_ENOUGH_REPLICAS)
        self.talk.uncommitted = [*others, *self.talk.uncommitted]
        self._collect()

    @rule()
    def coordinator_changes(self) -> None:
        """What was not committed is lost, and so are the answers that waited for it."""
        self.talk.restart()
        self.waiting.clear()

    @rule(topic=st.sampled_from(["orders", "payments", "refunds"]), count=st.integers(0, 5))
    def topic_changes(self, topic: str, count: int) -> None:
        shape = self.talk.topics.shape(TopicName(topic))
        if count == 0 and shape is not None and topic != "orders":
            self.talk.topics.delete(topic)
        elif shape is None or count > shape.partition_count:
            self.talk.topics.set(topic, max(count, 1))

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        for group in (self.talk.durable_group, self.talk.shard._book.consumer.get(GROUP)):
            if group is not None:
                held = [partition for member_id in group.members for partition in group.current(member_id).owned]
                assert len(held) == len(set(held)), "two members hold a partition"
        owners: dict[AssignedPartition, str] = {}
        for consumer in self.consumers:
            for partition in consumer.owned if self._is_known(consumer) else ():
                other = owners.setdefault(partition, consumer.name)
                assert other == consumer.name, f"{other} and {consumer.name} both read {partition}"

    def _is_known(self, consumer: TalkingConsumer) -> bool:
        """A member that the coordinator has given up on reads on until it hears of that; nobody can prevent it."""
        group = self.talk.shard._book.consumer.get(GROUP)
        return group is not None and MemberId(consumer.name) in group.members

    @invariant()
    def log_says_what_the_coordinator_thinks_is_durable(self) -> None:
        replayed = ConsumerGroup(GROUP)
        for key, value in self.talk.log:
            record = decode_record(key, value)
            if record is not None and not isinstance(record, OffsetRecord | GroupRecord):
                replayed.replay(record)
        durable = self.talk.durable_group
        assert _content(replayed) == _content(ConsumerGroup(GROUP) if durable is None else durable)

    def teardown(self) -> None:
        """Left alone, the group comes to rest: who is there shares everything."""
        self.waiting.clear()
        self.talk.log_commits = True
        self.talk.commit()
        self.talk.advance(2 * SESSION_TIMEOUT_MS)
        for _ in range(12):
            for consumer in list(self.consumers):
                if consumer.beat().error in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.FENCED_INSTANCE_ID):
                    self.consumers.remove(consumer)
        members = [consumer for consumer in self.consumers if consumer.epoch != JOIN_EPOCH]
        group = self.talk.durable_group
        if group is None or not members:
            return
        assert group.state is ConsumerGroupState.STABLE
        self.no_partition_has_two_owners()
        held = frozenset().union(*(consumer.owned for consumer in members))
        assert held == self.talk.topics.partitions(*group.subscribed_topics())


def _content(group: ConsumerGroup) -> object:
    current = {member_id: group.current(member_id) for member_id in group.members}
    return group.epoch, group.metadata_hash, group.members, group.target_epoch, group.targets, group.patterns, current


TestConsumerGroupUnderFire = ConsumerGroupUnderFire.TestCase
TestConsumerGroupUnderFire.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
