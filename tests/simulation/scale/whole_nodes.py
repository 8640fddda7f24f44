"""Whole nodes in the world, as many as fit: what an operation costs each of them, and how many bytes they send for it.

Partitions have logs on simulated disks, links between all nodes are up, and nothing is left out but the clients.
"""

import asyncio
from collections.abc import Awaitable, Callable
from statistics import median

import msgspec

from quorate.kernel.ids import NodeId, TopicName
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import MetadataImage
from tests.simulation.replication.cluster import ClusterShape, ReplicatedCluster
from tests.simulation.scale.metering import Meters, metered
from tests.simulation.world.world import World

REPLICAS = 3
IDLE_S = 10.0
_WITHIN_S = 300.0
_TOPIC = TopicName("scaled")


class NodeCosts(msgspec.Struct, frozen=True, kw_only=True):
    """Of one operation; processor time is real, and that of each node by itself."""

    virtual_s: float
    leader_s: float
    other_s: float
    most_other_s: float
    leader_bytes: int
    all_bytes: int


class ScaledCluster:
    def __init__(self, world: World, meters: Meters, nodes: int) -> None:
        """One node more than take part at first."""
        self._world = world
        self._meters = meters
        self.cluster = ReplicatedCluster(world, ClusterShape(nodes=nodes + 1, lag_ms=30_000))
        self.last = self.cluster.node_ids[-1]

    async def start(self) -> None:
        await asyncio.gather(*(self.cluster.bring_up(node_id) for node_id in self.cluster.node_ids[:-1]))
        await self._until(lambda image: len(image.live_brokers) == len(self.cluster.node_ids) - 1)

    async def idle(self) -> None:
        await self._world.sleep(IDLE_S)

    async def create(self, partitions: int) -> None:
        command = CreateTopic(name=_TOPIC, partition_count=partitions, replication_factor=REPLICAS)
        asked = self.cluster.node_ids[1]
        await self.cluster.hosts[asked].run(self.cluster.nodes[asked].metadata.submit_one(command))
        await self._until(self._all_have_their_roles)

    async def kill(self) -> None:
        victim = self._victim()
        self.cluster.kill(victim)
        await self._until(lambda image: not image.is_live(victim) and not image.leader_count(victim))

    async def bring_back(self) -> None:
        victim = next(node for node in self.cluster.node_ids[:-1] if node not in self.cluster.nodes)
        await self.cluster.bring_up(victim)
        await self._until(_all_in_sync)

    async def add(self) -> None:
        await self.cluster.bring_up(self.last)
        await self._until(lambda image: image.replica_count(self.last) > 0 and _all_in_sync(image))

    async def measure(self, operation: Callable[[], Awaitable[None]]) -> NodeCosts:
        began = self._world.now
        processor_s, sent = self._meters.processor_s.copy(), self._meters.sent_bytes()
        await operation()
        spent = {name: self._meters.processor_s[name] - processor_s[name] for name in self._names()}
        bytes_sent = {name: count - sent[name] for name, count in self._meters.sent_bytes().items()}
        leader = f"n{self.cluster.quorum_leader()}"
        others = [seconds for name, seconds in spent.items() if name != leader]
        return NodeCosts(
            virtual_s=self._world.now - began,
            leader_s=spent[leader],
            other_s=median(others),
            most_other_s=max(others),
            leader_bytes=bytes_sent[leader],
            all_bytes=sum(bytes_sent.values()),
        )

    def _names(self) -> list[str]:
        return [f"n{node_id}" for node_id in self.cluster.nodes]

    def _victim(self) -> NodeId:
        """Neither a voter, so that nothing but the partitions changes, nor without any."""
        image = self.cluster.newest_image()
        return max(self.cluster.node_ids[3:-1], key=lambda node: (image.leader_count(node), node))

    async def _until(self, holds: Callable[[MetadataImage], bool]) -> None:
        await self._world.until(lambda: self._all_agree() and holds(self.cluster.newest_image()), within_s=_WITHIN_S)

    def _all_agree(self) -> bool:
        return len({node.metadata.image.version for node in self.cluster.nodes.values()}) == 1

    def _all_have_their_roles(self, image: MetadataImage) -> bool:
        topic = image.topics.get(_TOPIC)
        return topic is not None and all(
            self.cluster.nodes[state.leader].partitions.own_leadership(_TOPIC, index) is not None
            for index, state in topic.partitions.items()
        )


def _all_in_sync(image: MetadataImage) -> bool:
    return all(
        set(state.isr) == set(state.replicas) and not state.is_reassigning
        for topic in image.topics.values()
        for state in topic.partitions.values()
    )


def measure_whole_nodes(nodes: int, partitions: int, seed: int = 1) -> dict[str, NodeCosts]:
    """By the name of the operation, in the order in which they came."""
    with World(seed) as world:
        meters = Meters(world)
        with metered(meters):
            scaled = ScaledCluster(world, meters, nodes)
            return world.run(_operations(scaled, partitions), within_s=10 * _WITHIN_S)


async def _operations(scaled: ScaledCluster, partitions: int) -> dict[str, NodeCosts]:
    await scaled.start()
    return {
        "nothing": await scaled.measure(scaled.idle),
        "create": await scaled.measure(lambda: scaled.create(partitions)),
        "nothing with partitions": await scaled.measure(scaled.idle),
        "kill": await scaled.measure(scaled.kill),
        "bring back": await scaled.measure(scaled.bring_back),
        "add": await scaled.measure(scaled.add),
    }
