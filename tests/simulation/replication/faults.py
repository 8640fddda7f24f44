"""Faults for a cluster of replicas: drawn one after the other, several under way at the same time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random

from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    Command,
    ElectionKind,
    ElectLeaders,
    PartitionName,
    PartitionReassignment,
)
from quorate.metadata.core.image import PartitionState
from tests.simulation.replication.clients import TOPIC
from tests.simulation.replication.cluster import ReplicatedCluster
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.host import HostDied
from tests.simulation.world.link import LinkSettings

_SICK_LINK = LinkSettings(delay_ms=20, jitter_ms=80, loss_probability=0.2, bytes_per_second=50_000)
_SLOW_DISK = WorkDelay(minimum_ms=5, maximum_ms=200, slow_probability=0.1, slow_ms=3_000)
_VERY_SLOW_DISK = WorkDelay(minimum_ms=100, maximum_ms=1_500)


class Faults:
    #: Those whose partitions are moved around.
    topics: tuple[TopicName, ...] = (TopicName(TOPIC),)

    def __init__(self, cluster: ReplicatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = random
        self._longest_s = random.choice([1.0, 2.0, 5.0])

    async def run(self, count: int, names: Sequence[str] = ()) -> None:
        """Draw from those named, or from all. Returns when they are over and every node has come up again."""
        under_way = []
        for _ in range(count):
            name = self._random.choice(names or self.drawn())
            self._world.trace.note(f"fault {name}")
            under_way.append(asyncio.ensure_future(getattr(self, f"_{name}")()))
            await self._wait()
        await asyncio.gather(*under_way)
        self._world.network.heal()

    def drawn(self) -> Sequence[str]:
        """What is drawn from where nothing is named."""
        return _ALL

    async def _kill(self) -> None:
        await self._restart(self._claim(), self._cluster.kill)

    async def _kill_leader(self) -> None:
        await self._restart(self._claim_leader(), self._cluster.kill)

    async def _power_off(self) -> None:
        await self._restart(self._claim_leader(), self._cluster.power_off)

    async def _kill_all(self) -> None:
        await asyncio.gather(*(self._restart(self._claim(), self._cluster.kill) for _ in self._cluster.node_ids))

    async def _power_off_all(self) -> None:
        await asyncio.gather(*(self._restart(self._claim(), self._cluster.power_off) for _ in self._cluster.node_ids))

    async def _power_cut_in_a_write(self) -> None:
        node_id = self._claim()
        if node_id is not None:
            self._cluster.hosts[node_id].disk.steps_until_power_cut = self._random.randint(1, 30)
            await self._wait()
            await self._restart(node_id, self._cluster.power_off)

    async def _stop(self) -> None:
        node_id = self._claim()
        if node_id is not None:
            await self._cluster.stop(node_id)
            await self._restart(node_id, self._cluster.kill)

    async def _freeze(self) -> None:
        node_id = self._claim_leader()
        if node_id is not None:
            host = self._cluster.hosts[node_id]
            host.freeze()
            await self._wait()
            host.thaw()
            self._cluster.claimed.discard(node_id)

    async def _isolate(self) -> None:
        name = self._name(self._random.choice(self._cluster.node_ids))
        await self._cut([(name, other) for other in [*self._others(name), "client"]])

    async def _isolate_from_peers(self) -> None:
        """Its clients still reach it."""
        leaders = sorted(self._cluster.leaders()) or self._cluster.node_ids
        name = self._name(self._random.choice(leaders))
        await self._cut([(name, other) for other in self._others(name)])

    async def _block_one_way(self) -> None:
        one, other = self._random.sample(self._cluster.node_ids, 2)
        network = self._world.network
        network.block(self._name(one), self._name(other))
        await self._wait()
        network.unblock(self._name(one), self._name(other))

    async def _break_connections(self) -> None:
        one, other = self._random.sample(self._cluster.node_ids, 2)
        self._cluster.hosts[one].break_connections(self._cluster.hosts[other])

    async def _sick_link(self) -> None:
        one, other = self._random.sample(self._cluster.node_ids, 2)
        link = self._world.network.link(self._name(one), self._name(other))
        usual, link.settings = link.settings, _SICK_LINK
        await self._wait()
        link.settings = LinkSettings() if usual is _SICK_LINK else usual

    async def _slow_disk(self) -> None:
        executor = self._cluster.hosts[self._random.choice(self._cluster.node_ids)].executor
        executor.delay = _SLOW_DISK
        await self._wait()
        executor.delay = self._world.work_delay

    async def _fill_disk(self) -> None:
        """Somebody makes room after a while; the node may have ended itself, so it is started again."""
        node_id = self._claim()
        if node_id is not None:
            disk = self._cluster.hosts[node_id].disk
            free_bytes, disk.free_bytes = disk.free_bytes, self._random.randrange(3_000)
            await self._wait()
            disk.free_bytes = free_bytes
            await self._restart(node_id, self._cluster.kill)

    async def _failing_syncs(self) -> None:
        """The node ends itself where it notices; somebody puts the disk right and starts it again."""
        node_id = self._claim_leader()
        if node_id is not None:
            disk = self._cluster.hosts[node_id].disk
            disk.syncs_fail = True
            await self._wait()
            disk.syncs_fail = False
            await self._restart(node_id, self._cluster.kill)

    async def _move_leaders(self) -> None:
        """Nobody dies of it, so what was being written to a slow disk then is still being written."""
        executor = self._cluster.hosts[self._random.choice(self._cluster.node_ids)].executor
        executor.delay = _VERY_SLOW_DISK
        for _ in range(self._random.randint(1, 4) if self._partitions() else 0):
            (topic, index), state = self._random.choice(list(self._partitions().items()))
            others = [node_id for node_id in self._cluster.node_ids if node_id not in state.replicas]
            replicas = self._random.sample(state.replicas, 3)
            if others and self._random.random() < 0.2:
                replicas[-1] = self._random.choice(others)
            move = PartitionReassignment(topic=topic, partition=index, replicas=tuple(replicas))
            elect = ElectLeaders(kind=ElectionKind.PREFERRED, partitions=(PartitionName(topic, index),))
            await self._command(AlterPartitionReassignments(reassignments=(move,)))
            await self._command(elect)
            await self._world.sleep(self._random.random() ** 2)
        executor.delay = self._world.work_delay

    async def _lose_answers(self) -> None:
        """A replica comes back and is gone again; that it was in sync, its leader is not told."""
        controller = self._cluster.quorum_leader()
        # Best where the quorum leader has no replica, for then the others go on without it.
        states = sorted(self._partitions().values(), key=lambda state: controller in state.replicas)
        if controller is None or not states or not states[0].has_leader or states[0].leader == controller:
            return
        leader = states[0].leader
        around = [node_id for node_id in states[0].replicas if node_id not in (leader, controller)]
        follower = next((node_id for node_id in around if node_id not in self._cluster.claimed), None)
        if follower is None:
            return
        host = self._cluster.hosts[self._claimed(follower)]
        host.freeze()
        await self._world.sleep(self._cluster.shape.lag_ms / 1000 + self._random.random() * 0.5)
        self._world.network.block(self._name(controller), self._name(leader))
        host.thaw()
        await self._world.sleep(self._random.random() * 0.5)
        host.freeze()
        await self._world.sleep(self._cluster.shape.lag_ms / 1000 + self._random.random())
        self._world.network.unblock(self._name(controller), self._name(leader))
        host.thaw()
        self._cluster.claimed.discard(follower)

    def _partitions(self) -> Mapping[tuple[TopicName, PartitionIndex], PartitionState]:
        known = self._cluster.newest_image().topics
        return {
            (topic, index): state
            for topic in self.topics
            if topic in known
            for index, state in known[topic].partitions.items()
        }

    async def _command(self, command: Command) -> None:
        """By an operator, through any node. Whether it comes to anything does not matter here."""
        for node_id, node in list(self._cluster.nodes.items()):
            if node_id not in self._cluster.claimed:
                with suppress(HostDied):
                    await self._cluster.hosts[node_id].run(node.metadata.submit([command]))
                return

    async def _restart(self, node_id: NodeId | None, end: Callable[[NodeId], None]) -> None:
        if node_id is None:
            return
        end(node_id)
        await self._wait()
        self._cluster.hosts[node_id].disk.steps_until_power_cut = None
        await self._cluster.bring_up(node_id)
        self._cluster.claimed.discard(node_id)

    async def _cut(self, pairs: list[tuple[str, str]]) -> None:
        for one, other in pairs:
            self._world.network.partition([one], [other])
        await self._wait()
        for one, other in pairs:
            self._world.network.unblock(one, other)
            self._world.network.unblock(other, one)

    def _claim(self) -> NodeId | None:
        free = [node_id for node_id in self._cluster.node_ids if node_id not in self._cluster.claimed]
        return self._claimed(self._random.choice(free)) if free else None

    def _claim_leader(self) -> NodeId | None:
        free = [node_id for node_id in sorted(self._cluster.leaders()) if node_id not in self._cluster.claimed]
        return self._claimed(self._random.choice(free)) if free else self._claim()

    def _claimed(self, node_id: NodeId) -> NodeId:
        self._cluster.claimed.add(node_id)
        return node_id

    def _name(self, node_id: NodeId) -> str:
        return self._cluster.hosts[node_id].name

    def _others(self, name: str) -> list[str]:
        return [host.name for host in self._cluster.hosts.values() if host.name != name]

    async def _wait(self) -> None:
        await self._world.sleep(self._random.random() ** 2 * self._longest_s)


_FAULTS = tuple(
    name.strip("_")
    for name, fault in vars(Faults).items()
    if asyncio.iscoroutinefunction(fault) and name not in ("run", "_restart", "_cut", "_command", "_wait")
)
#: Some are drawn more often: they kill nobody, or need others to be under way.
_ALL = (*_FAULTS, "power_off", "move_leaders", "lose_answers")
