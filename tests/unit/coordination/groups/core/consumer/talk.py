"""A scripted talk with a shard about consumer groups: topics that change, and clients that follow the protocol."""

from collections.abc import Iterable
from uuid import UUID

import msgspec

from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.commands import (
    JOIN_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from quorate.coordination.groups.core.consumer.group import ConsumerGroup
from quorate.coordination.groups.core.consumer.topics import NO_PARTITIONS, AssignedPartition, Partitions, TopicShape
from quorate.coordination.groups.core.effects import TopicsChanged
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, MemberId, PartitionIndex, TopicId, TopicName
from quorate.kernel.pattern import compile_pattern
from tests.unit.coordination.groups.core.conversation import AT_ONCE, GROUP, REBALANCE_TIMEOUT_MS, Conversation


class FakeTopics:
    """Topics that a test makes and changes; every change is another version."""

    def __init__(self, **partition_counts: int) -> None:
        self._shapes: dict[TopicName, TopicShape] = {}
        self.version = self.names_version = 0
        self.lookups = 0
        self.is_looked_up = True
        for name, count in partition_counts.items():
            self.set(name, count)

    def set(self, name: str, partition_count: int) -> None:
        known = self._shapes.get(TopicName(name))
        self.version += 1
        if known is None:
            self.names_version = self.version
        topic_id = TopicId(UUID(int=self.version)) if known is None else known.topic_id
        self._shapes[TopicName(name)] = TopicShape(topic_id=topic_id, partition_count=partition_count)

    def delete(self, name: str) -> None:
        del self._shapes[TopicName(name)]
        self.version += 1
        self.names_version = self.version

    def shape(self, name: TopicName) -> TopicShape | None:
        return self._shapes.get(name)

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return next((name for name, shape in self._shapes.items() if shape.topic_id == topic_id), None)

    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        if not self.is_looked_up:
            return None
        self.lookups += 1
        return frozenset(map(TopicName, compile_pattern(pattern).matching(self._shapes)))

    def partitions(self, *names: str) -> Partitions:
        return frozenset(
            AssignedPartition(shape.topic_id, PartitionIndex(index))
            for name, shape in self._shapes.items()
            if name in names
            for index in range(shape.partition_count)
        )


class ConsumerConversation(Conversation):
    def __init__(
        self, topics: FakeTopics | None = None, config: GroupConfig = AT_ONCE, *, log_commits: bool = True
    ) -> None:
        self.topics = FakeTopics(orders=4) if topics is None else topics
        super().__init__(config, log_commits=log_commits)

    def new_shard(self) -> GroupCoordinatorShard:
        shard = super().new_shard()
        shard.handle(TopicsChanged(topics=self.topics), self.now_ms)
        return shard

    def beat(self, member_id: str, epoch: int, **said: object) -> ConsumerGroupHeartbeatResult:
        return self.ask(heartbeat(member_id, epoch, **said), ConsumerGroupHeartbeatResult)

    def describe(self, group_id: GroupId = GROUP) -> DescribeConsumerGroupResult:
        return self.ask(DescribeConsumerGroup(group_id=group_id), DescribeConsumerGroupResult)

    @property
    def durable_group(self) -> ConsumerGroup | None:
        """What the log says of the group."""
        return self.shard._book.state.consumer_group(GROUP)

    def consumer(self, name: str, **said: object) -> "TalkingConsumer":
        return TalkingConsumer(self, name, **said)


def heartbeat(member_id: str, epoch: int, **said: object) -> ConsumerGroupHeartbeat:
    """A joining one says everything, another only what the test says."""
    fields: dict[str, object] = {
        "group_id": GROUP,
        "member_id": MemberId(member_id),
        "member_epoch": epoch,
        "client_id": "client",
        "client_host": "/127.0.0.1",
    }
    if epoch == JOIN_EPOCH:
        fields |= {
            "rebalance_timeout_ms": REBALANCE_TIMEOUT_MS,
            "topics": frozenset({TopicName("orders")}),
            "owned": NO_PARTITIONS,
        }
    return ConsumerGroupHeartbeat(**(fields | said))  # type: ignore[arg-type]


class TalkingConsumer:
    """A client that does as it is told: gives up what is not assigned any more, and starts anew when it is fenced."""

    def __init__(self, talk: ConsumerConversation, name: str, **said: object) -> None:
        self._talk = talk
        self._said = said
        self.name = name
        self.epoch = JOIN_EPOCH
        self.owned = NO_PARTITIONS

    def beat(self) -> ConsumerGroupHeartbeatResult:
        result = self._talk.ask(self.request(), ConsumerGroupHeartbeatResult)
        self.hear(result)
        return result

    def request(self) -> ConsumerGroupHeartbeat:
        """One that says everything, as after a lost answer."""
        complete = heartbeat(self.name, JOIN_EPOCH, **self._said)
        return msgspec.structs.replace(complete, member_epoch=self.epoch, owned=self.owned)

    def start_anew(self) -> None:
        self.epoch, self.owned = JOIN_EPOCH, NO_PARTITIONS

    def hear(self, result: ConsumerGroupHeartbeatResult) -> None:
        if result.error in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID):
            self.start_anew()
        if result.error is not ErrorCode.NONE:
            return
        self.epoch = result.member_epoch
        if result.assignment is not None:
            self.owned = result.assignment


def settle(consumers: Iterable[TalkingConsumer], rounds: int = 6) -> None:
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()
