"""Clients that create, extend, configure, delete and look up topics, through any node, whatever happens meanwhile.

A topic is changed only by the client that owns it, so that it knows what to expect. Answers that did not come are
neither success nor failure.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from uuid import UUID

from quorate.kernel.errors import ErrorCode
from quorate.metadata.core.commands import ConfigOperation
from quorate.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from quorate.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from quorate.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from quorate.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from quorate.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from quorate.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.simulation.cluster.cluster import Member, SimulatedCluster
from tests.simulation.cluster.connections import Connections, NoAnswer

_TOPIC = 2


class OwnTopic:
    def __init__(self, name: str, topic_id: UUID, partition_count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count
        #: Some request went unanswered: it may have been carried out, or may yet be.
        self.is_unsure = False


class Client:
    """Runs on the clients' host."""

    def __init__(self, cluster: SimulatedCluster, name: str) -> None:
        self._cluster = cluster
        self._ledger = cluster.ledger
        self._random = Random(f"{cluster.world.seed}/{name}")
        self._name = name
        self._topics: list[OwnTopic] = []
        self._counter = 0
        self._connections = Connections(cluster)

    async def run(self, is_over: Callable[[], bool]) -> None:
        works: list[Callable[[Member], Awaitable[bool]]] = [
            self.create,
            self.create,
            self.auto_create_at_many,
            self.extend,
            self.configure,
            self.delete,
            self.look_up,
            self.look_up,
            self.describe,
            self.find_coordinator,
        ]
        while not is_over():
            await self._random.choice(works)(self._random.choice(self._cluster.members))
            await self._cluster.world.sleep(self._random.random() * self._cluster.shape.think_s * 2)

    async def each_work_once(self, member: Member) -> list[str]:
        """All that a client can ask for, through one node; returns what did not work."""
        works = (self.create, self.extend, self.configure, self.look_up, self.describe, self.find_coordinator)
        failed = [work.__name__ for work in works if not await work(member)]
        if not await self.auto_create_at_many(member):
            failed.append("auto_create_at_many")
        if not await self.delete(member):
            failed.append("delete")
        return failed

    async def create(self, member: Member) -> bool:
        name = self._new_name()
        count = self._random.randint(1, 3)
        factor = self._random.randint(1, min(3, len(self._cluster.shape.voters)))
        topic = CreatableTopic(name=name, num_partitions=count, replication_factor=factor)
        self._ledger.asks_for_topic(name)
        try:
            answer, view = await self._connections.ask(
                member, CreateTopicsRequest(topics=[topic]), 7, CreateTopicsResponse
            )
        except NoAnswer:
            return False
        (result,) = answer.topics
        if self._ledger.answered(result.error_code) is not ErrorCode.NONE:
            return False
        self._ledger.created(view, name, result.topic_id)
        self._topics.append(OwnTopic(name, result.topic_id, count))
        return True

    async def auto_create_at_many(self, member: Member) -> bool:
        """The same new topics at several nodes at once: each is one topic, whoever is asked."""
        names = [self._new_name() for _ in range(self._random.randint(1, 2))]
        for name in names:
            self._ledger.asks_for_topic(name)
        others = [other for other in self._cluster.present if other is not member]
        members = [member, *self._random.sample(others, min(2, len(others)))]
        answers = await asyncio.gather(*(self._look_up(at, names) for at in members))
        for name in names:
            ids = {answer[name] for answer in answers if answer is not None and name in answer}
            if len(ids) > 1:
                self._cluster.findings.report("one truth", f"{name} has the ids {ids}")
        return all(answer is not None and set(answer) == set(names) for answer in answers)

    async def extend(self, member: Member) -> bool:
        topic = self._some_topic()
        if topic is None:
            return True
        count = topic.partition_count + 1
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=topic.name, count=count, assignments=None)], timeout_ms=10_000
        )
        try:
            answer, view = await self._connections.ask(member, request, 3, CreatePartitionsResponse)
        except NoAnswer:
            topic.is_unsure = True
            return False
        allowed = (ErrorCode.INVALID_PARTITIONS,) if topic.is_unsure else ()
        error = self._ledger.answered(answer.results[0].error_code, *allowed)
        if error is ErrorCode.REQUEST_TIMED_OUT:
            topic.is_unsure = True
        if error is ErrorCode.NONE:
            topic.partition_count = count
            self._ledger.extended(view, topic.name, topic.topic_id, count)
        elif error is ErrorCode.INVALID_PARTITIONS:
            topic.partition_count = count
        return error in (ErrorCode.NONE, *allowed)

    async def configure(self, member: Member) -> bool:
        topic = self._some_topic()
        if topic is None:
            return True
        self._counter += 1
        value = str(10_000_000 + self._counter)
        change = AlterableConfig(name="retention.ms", config_operation=ConfigOperation.SET, value=value)
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic.name, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        try:
            answer, view = await self._connections.ask(member, request, 1, IncrementalAlterConfigsResponse)
        except NoAnswer:
            return False
        error = self._ledger.answered(answer.responses[0].error_code)
        if error is ErrorCode.NONE:
            self._ledger.configured(view, topic.topic_id, "retention.ms", value)
        return error is ErrorCode.NONE

    async def delete(self, member: Member) -> bool:
        topic = self._some_topic()
        if topic is None:
            return True
        self._topics.remove(topic)
        state = DeleteTopicState(name=topic.name)
        if self._random.random() < 0.5:
            state = DeleteTopicState(name=None, topic_id=topic.topic_id)
        request = DeleteTopicsRequest(topics=[state], timeout_ms=10_000)
        try:
            answer, view = await self._connections.ask(member, request, 6, DeleteTopicsResponse)
        except NoAnswer:
            return False
        error = self._ledger.answered(answer.responses[0].error_code)
        if error is ErrorCode.NONE:
            self._ledger.deleted(view, topic.topic_id)
        return error is ErrorCode.NONE

    async def look_up(self, member: Member) -> bool:
        return await self._look_up(member, None) is not None

    async def describe(self, member: Member) -> bool:
        asked_at = self._cluster.world.now
        try:
            answer, view = await self._connections.ask(
                member, DescribeTopicPartitionsRequest(), 0, DescribeTopicPartitionsResponse
            )
        except NoAnswer:
            return False
        self._cluster.answers.check_description(view, asked_at, answer)
        return True

    async def find_coordinator(self, member: Member) -> bool:
        request = FindCoordinatorRequest(coordinator_keys=[f"group-{self._random.randint(1, 9)}"])
        asked_at = self._cluster.world.now
        try:
            answer, view = await self._connections.ask(member, request, 6, FindCoordinatorResponse)
        except NoAnswer:
            return False
        (found,) = answer.coordinators
        self._cluster.answers.check_coordinator(view, asked_at, found)
        return self._ledger.answered(found.error_code) is ErrorCode.NONE

    async def _look_up(self, member: Member, names: Sequence[str] | None) -> dict[str, UUID] | None:
        """The ids of the topics that are there; those that were named are made where they are missing."""
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        asked_at = self._cluster.world.now
        try:
            answer, view = await self._connections.ask(member, MetadataRequest(topics=topics), 12, MetadataResponse)
        except NoAnswer:
            return None
        self._cluster.answers.check_metadata(view, asked_at, answer, all_topics=names is None)
        found = {}
        for topic in answer.topics:
            if self._ledger.answered(topic.error_code) is ErrorCode.NONE:
                found[topic.name or ""] = topic.topic_id
        return found

    def _some_topic(self) -> OwnTopic | None:
        return self._random.choice(self._topics) if self._topics else None

    def _new_name(self) -> str:
        self._counter += 1
        return f"{self._name}-{self._counter}"
