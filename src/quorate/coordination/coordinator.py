"""What the coordinators of groups and of transactions have in common: which shards this node runs, and who is asked.

A group or a transactional id belongs to one partition of an internal topic, and whoever leads that partition
coordinates it. The metadata image says who that is; there is no other place to ask.

What a coordinator appends is answered once all replicas in sync have it, so every successor goes on from it. But much
is answered from memory: committed offsets, a member or producer that was replaced, a transaction that has ended
already. A coordinator that is cut off from the cluster, and not from its clients, would answer that as it was before
its successor went on. So such an answer is confirmed first: a majority of the quorum knows of no successor.

What is answered later and not by the log is left as it is: a member that has joined such a coordinator gets no
assignment from it, since that takes an append.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Generic, Protocol, TypeVar, cast

import msgspec

from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.runtime import ShardRunner
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, NodeId, PartitionIndex, PartitionLeader, TopicName, TransactionalId
from quorate.kernel.ports import Clock
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.core.image import Broker, Delta, MetadataImage
from quorate.metadata.store import MetadataStore
from quorate.protocol.schema import Request, Response
from quorate.replication.partition import Partition
from quorate.replication.partitions import Partitions

logger = logging.getLogger(__name__)

ResponseType = TypeVar("ResponseType", bound=Response)
NameT = TypeVar("NameT", GroupId, TransactionalId)
CommandT = TypeVar("CommandT")
ResultT = TypeVar("ResultT")
RunnerT = TypeVar("RunnerT", bound=ShardRunner[Any, Any, Any, Any, Any])


class AskNode(Protocol):
    """The port through which a coordinator's requests reach other nodes, and this one: part of ``PeerRequests``."""

    async def ask(
        self, node_id: NodeId, request: Request, version: int, response_type: type[ResponseType], timeout_ms: float
    ) -> ResponseType: ...


class CoordinatorEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator uses of its node."""

    node_id: NodeId
    metadata: MetadataStore
    partitions: Partitions
    loop: asyncio.AbstractEventLoop
    clock: Clock
    executor: Executor
    #: The broker's value of a configuration.
    config: Callable[[str], ConfigValue]

    def int_config(self, name: str) -> int:
        return cast(int, self.config(name))


class Coordinator(ABC, Generic[NameT, CommandT, ResultT, RunnerT]):
    """The shards of ``topic`` that this node runs. What differs between groups and transactions is abstract."""

    def __init__(self, environment: CoordinatorEnvironment, topic: TopicName) -> None:
        self._environment = environment
        self._topic = topic
        self._runners: dict[PartitionIndex, RunnerT] = {}

    @abstractmethod
    def _new_runner(self, partition: Partition) -> RunnerT: ...

    @abstractmethod
    def _topic_to_create(self) -> CreateTopic: ...

    @abstractmethod
    def _refusal(self, command: CommandT, error: ErrorCode) -> ResultT: ...

    @abstractmethod
    def _binds(self, result: ResultT) -> bool:
        """Whether a client acts on the result for good."""

    def start(self) -> None:
        metadata, partitions = self._environment.metadata, self._environment.partitions
        topic = metadata.image.topics.get(self._topic)
        for index in () if topic is None else topic.partitions:
            self._leadership_changed(self._topic, index, partitions.own_leadership(self._topic, index))
        metadata.subscribe(self._topics_deleted)
        partitions.on_role_changed(self._leadership_changed)

    def stop(self) -> None:
        for index in list(self._runners):
            self._stop_runner(index)

    # Who is asked.

    async def find(self, name: NameT) -> Broker:
        """The node that coordinates the name. Makes the internal topic the first time anybody asks."""
        if self._topic not in self._environment.metadata.image.topics:
            await self._create_topic()
        broker = self.known_coordinator(name)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return broker

    def known_coordinator(self, name: NameT) -> Broker | None:
        image = self._environment.metadata.image
        index = self.partition_for(name)
        leader = None if index is None else image.partition_leader(self._topic, index)
        return None if leader is None else image.brokers.get(leader.node_id)

    def partition_for(self, name: NameT) -> PartitionIndex | None:
        topic = self._environment.metadata.image.topics.get(self._topic)
        return None if topic is None else partition_for(name, len(topic.partitions))

    def _runner_for(self, name: NameT) -> RunnerT | None:
        index = self.partition_for(name)
        return None if index is None else self._runners.get(index)

    async def _ask_shard(self, name: NameT, command: CommandT) -> ResultT:
        """Have the name's shard carry out the command, if this node runs it."""
        refused = self._refusal(command, ErrorCode.NOT_COORDINATOR)
        runner = self._runner_for(name)
        if runner is None:
            return refused
        return await confirmed(runner.ask(command), self._binds, runner, self._environment.metadata, otherwise=refused)

    async def _ask_all_shards(self, command: CommandT) -> list[ResultT]:
        results: list[ResultT] = await asyncio.gather(*(runner.ask(command) for runner in list(self._runners.values())))
        return results

    async def _create_topic(self) -> None:
        try:
            await self._environment.metadata.submit_one(self._topic_to_create())
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("%s not created node=%s error=%s", self._topic, self._environment.node_id, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    # Which shards this node runs.

    def _topics_deleted(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 - a listener's signature
        if any(topic.name == self._topic for topic in delta.deleted_topics):
            self.stop()

    def _leadership_changed(self, topic: TopicName, index: PartitionIndex, leader: PartitionLeader | None) -> None:
        if topic != self._topic:
            return
        leads = leader is not None and leader.node_id == self._environment.node_id
        runner = self._runners.get(index)
        if runner is not None and (not leads or leader is None or runner.leader_epoch != leader.leader_epoch):
            self._stop_runner(index)
        if leads and index not in self._runners:
            self._start_runner(index)

    def _start_runner(self, index: PartitionIndex) -> None:
        try:
            partition = self._environment.partitions.led(self._topic, index)
        except KafkaError as error:
            node_id = self._environment.node_id
            logger.error("coordinator not started node=%s partition=%s-%s error=%s", node_id, self._topic, index, error)
            return
        runner = self._runners[index] = self._new_runner(partition)
        runner.start()

    def _runner_failed(self, failed: ShardRunner[Any, Any, Any, Any, Any], error: Exception) -> None:
        """Better no coordinator than one that has forgotten offsets, or what is decided."""
        node_id, epoch = self._environment.node_id, failed.leader_epoch
        logger.error("coordinator failed node=%s partition=%s epoch=%s error=%r", node_id, failed, epoch, error)
        for index, runner in list(self._runners.items()):
            if runner is failed:
                self._stop_runner(index)

    def _stop_runner(self, index: PartitionIndex) -> None:
        self._runners.pop(index).stop()


class Confirmable(Protocol):
    """A shard's runner, as far as its answers need it."""

    @property
    def is_over(self) -> bool:
        """Whether another node coordinates, or this one anew."""
        ...


async def confirmed(
    answer: "asyncio.Future[ResultT]",
    binds: Callable[[ResultT], bool],
    runner: Confirmable,
    metadata: MetadataStore,
    *,
    otherwise: ResultT,
) -> ResultT:
    """``answer``, or ``otherwise`` if the client would act on the answer for good and there may be a successor."""
    if not answer.done():
        return await answer
    result = answer.result()
    if not binds(result) or (await metadata.is_current() and not runner.is_over):
        return result
    return otherwise
