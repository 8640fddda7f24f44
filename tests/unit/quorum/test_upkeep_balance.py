"""What the cluster does by itself for its balance, and what it leaves to operators."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Executor
from typing import Any
from uuid import UUID

from quorate.kernel.ids import NodeId, PartitionIndex, QuorumLeader, Term, TopicName
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import MetadataImage, PartitionState
from quorate.quorum.upkeep import AutomaticBalance, BalanceConfig
from tests.simulation.simulated_node import QueuedExecutor
from tests.unit.metadata.in_memory_store import InMemoryMetadataStore

ORDERS = TopicName("orders")


class Balanced:
    """A store, and a balance that looks at once after every change."""

    def __init__(self, executor: Executor | None = None) -> None:
        ids = iter(range(1, 1_000))
        controller = Controller(
            BrokerView(node_id=NodeId(7), static_configs={}), lambda: UUID(int=next(ids)), lambda: 0
        )
        self.store = InMemoryMetadataStore(controller, MetadataImage())
        config = BalanceConfig(delay_ms=0, moves_leaders=False, fills_new_nodes=True, favours_quorum_leader=False)
        leadership = QuorumLeader(NodeId(7), Term(1))
        loop = asyncio.get_running_loop()
        AutomaticBalance(config, self.store, lambda: leadership, loop, executor or QueuedExecutor()).start()

    async def join(self, *nodes: int) -> None:
        for node in nodes:
            await self.store.submit_one(c.RegisterBroker(node_id=NodeId(node), host="h", port=1, fenced=False))

    async def create(self, partition_count: int, replication_factor: int) -> None:
        wanted = c.CreateTopic(name=ORDERS, partition_count=partition_count, replication_factor=replication_factor)
        await self.store.submit_one(wanted)

    async def remove(self, node: int) -> None:
        await self.store.submit_one(c.UnregisterBroker(node_id=NodeId(node), even_with_replicas=True))

    async def leave_to(self, node: int) -> None:
        """Only this one keeps its replicas."""
        moves = tuple(
            c.PartitionReassignment(topic=ORDERS, partition=PartitionIndex(index), replicas=(NodeId(node),))
            for index in range(len(self.partitions))
        )
        await self.store.submit_one(
            c.AlterPartitionReassignments(reassignments=moves, allow_replication_factor_change=True)
        )

    @property
    def partitions(self) -> list[PartitionState]:
        return list(self.store.image.topics[ORDERS].partitions.values())

    async def settle(self) -> list[int]:
        """After the balance has looked: on how many partitions each broker is wanted."""
        for _ in range(20):
            await asyncio.sleep(0)
        wanted = [node for state in self.partitions for node in state.target_replicas]
        return [wanted.count(node) for node in sorted(self.store.image.brokers)]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_a_new_node_gets_its_share() -> None:
    async def scenario() -> None:
        cluster = Balanced()
        await cluster.join(7, 100)
        await cluster.create(6, 1)
        assert await cluster.settle() == [3, 3]
        await cluster.join(4001)
        assert await cluster.settle() == [2, 2, 2]

    run(scenario())


def test_a_node_that_was_emptied_stays_empty() -> None:
    async def scenario() -> None:
        cluster = Balanced()
        await cluster.join(7, 100)
        await cluster.create(6, 2)
        await cluster.leave_to(7)
        assert await cluster.settle() == [6, 0]

    run(scenario())


def test_what_a_removed_node_held_goes_to_others() -> None:
    async def scenario() -> None:
        cluster = Balanced()
        await cluster.join(7, 100, 4001, 5000)
        await cluster.create(4, 3)
        assert await cluster.settle() == [3, 3, 3, 3]
        await cluster.remove(5000)
        assert await cluster.settle() == [4, 4, 4]

    run(scenario())


def test_many_partitions_are_looked_at_by_a_worker() -> None:
    async def scenario() -> None:
        worker = QueuedExecutor()
        cluster = Balanced(worker)
        await cluster.join(7, 100)
        await cluster.create(6_000, 1)
        await cluster.settle()
        while worker.queue:
            worker.run(0)
            await cluster.settle()
        await cluster.join(4001)
        assert await cluster.settle() == [3_000, 3_000, 0]
        while worker.queue:
            worker.run(0)
            await cluster.settle()
        assert await cluster.settle() == [2_000, 2_000, 2_000]

    run(scenario())
