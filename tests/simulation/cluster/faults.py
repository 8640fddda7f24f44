"""Faults for a cluster: drawn one after the other, each ended after a while, several under way at the same time."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

from quorate.kernel.errors import QuorateError
from tests.simulation.cluster.cluster import Member, SimulatedCluster
from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.link import LinkSettings

_SICK_LINK = LinkSettings(delay_ms=20, jitter_ms=80, loss_probability=0.2, bytes_per_second=50_000)
_SLOW_DISK = WorkDelay(minimum_ms=5, maximum_ms=80, slow_probability=0.05, slow_ms=1_000)


class ClusterFaults:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._longest_s = cluster.shape.longest_fault_s
        self._blocked: dict[tuple[str, str], int] = {}
        #: When the last fault was ended; from then on it is up to the cluster.
        self.last_repair_at = self._world.now

    async def run(self, names: tuple[str, ...], count: int) -> None:
        """Returns when all faults are over and every node that is left has come up again."""
        under_way = []
        for _ in range(count):
            name = self._random.choice(names)
            self._world.trace.note(f"fault {name}")
            under_way.append(asyncio.ensure_future(FAULTS[name](self)))
            await self._wait()
        self._longest_s = min(self._longest_s, 0.5)
        await asyncio.gather(*under_way)
        self._world.network.heal()

    async def kill(self) -> None:
        await self._restart(self._claim(), self._cluster.kill)

    async def kill_leader(self) -> None:
        await self._restart(self._claim_leader(), self._cluster.kill)

    async def power_off(self) -> None:
        await self._restart(self._claim(), self._cluster.power_off)

    async def power_off_leader(self) -> None:
        await self._restart(self._claim_leader(), self._cluster.power_off)

    async def kill_all(self) -> None:
        members = [member for member in self._cluster.present if not member.is_claimed]
        await asyncio.gather(*(self._restart(self._claimed(member), self._cluster.kill) for member in members))

    async def power_off_all(self) -> None:
        members = [member for member in self._cluster.present if not member.is_claimed]
        await asyncio.gather(*(self._restart(self._claimed(member), self._cluster.power_off) for member in members))

    async def power_cut_in_a_write(self) -> None:
        member = self._claim()
        if member is not None:
            member.host.disk.steps_until_power_cut = self._random.randint(1, 30)
            await self._wait()
            await self._restart(member, self._cluster.power_off)

    async def stop(self) -> None:
        """A rolling restart takes its nodes down in good order."""
        member = self._claim()
        if member is not None and member.is_serving:
            await self._cluster.stop(member)
        await self._restart(member, self._cluster.kill)

    async def freeze(self) -> None:
        await self._freeze(self._claim())

    async def freeze_leader(self) -> None:
        await self._freeze(self._claim_leader())

    async def isolate(self) -> None:
        member = self._random.choice(self._cluster.present)
        others = [other.host.name for other in self._cluster.members if other is not member]
        await self._cut((a, b) for other in [*others, "client"] for a, b in _both(member.host.name, other))

    async def isolate_leader_from_peers(self) -> None:
        """Its clients still reach it."""
        leader = self._cluster.leader()
        if leader is not None:
            others = [other.host.name for other in self._cluster.members if other is not leader]
            await self._cut((a, b) for other in others for a, b in _both(leader.host.name, other))

    async def split(self) -> None:
        names = [member.host.name for member in self._cluster.members]
        self._random.shuffle(names)
        middle = self._random.randint(1, len(names))
        await self._cut((a, b) for one in names[:middle] for two in names[middle:] for a, b in _both(one, two))

    async def block_one_way(self) -> None:
        one, two = self._two()
        await self._cut([(one.host.name, two.host.name)])

    async def mute_leader(self) -> None:
        """It hears everybody, and nobody hears it."""
        leader = self._cluster.leader()
        if leader is not None:
            others = [other.host.name for other in self._cluster.members if other is not leader]
            await self._cut((leader.host.name, other) for other in others)

    async def flapping_connections(self) -> None:
        """Again and again, so that some answer to something that was done is lost."""
        leader = self._cluster.leader() or self._cluster.members[0]
        others = [member for member in self._cluster.members if member is not leader]
        for _ in range(self._random.randint(3, 20)):
            for other in others:
                leader.host.break_connections(other.host)
            await self._world.sleep(self._random.random() * 0.1)

    async def sick_link(self) -> None:
        one, two = self._two()
        link = self._world.network.link(one.host.name, two.host.name)
        if link.settings != _SICK_LINK:
            usual, link.settings = link.settings, _SICK_LINK
            await self._wait()
            link.settings = usual

    async def slow_disk(self) -> None:
        executor = self._random.choice(self._cluster.present).host.executor
        if executor.delay != _SLOW_DISK:
            usual, executor.delay = executor.delay, _SLOW_DISK
            await self._wait()
            executor.delay = usual

    async def clock_jump(self) -> None:
        member = self._random.choice(self._cluster.present)
        member.host.clock.jump(self._random.choice([-3_600_000, -5_000, 5_000, 3_600_000]))

    async def fill_disk(self) -> None:
        """Somebody makes room after a while, and starts the process again."""
        member = self._claim()
        if member is None:
            return
        disk = member.host.disk
        member.disk_is_sick = True
        free_bytes, disk.free_bytes = disk.free_bytes, self._random.randrange(5_000)
        await self._wait()
        self._cluster.kill(member)
        disk.free_bytes = free_bytes
        await self._restart(member, self._cluster.kill)
        member.disk_is_sick = False

    async def rot(self) -> None:
        """As long as all other voters are sound: what is damaged on one of them is given back by the others."""
        cluster = self._cluster
        if len(cluster.shape.voters) < 3 or any(map(cluster.lacks_something, cluster.members)):
            return
        member = self._claim()
        if member is not None:
            cluster.kill(member)
            cluster.damage(member, flips=self._random.choice([1, 1, 2, 5]))
            await self._restart(member, cluster.kill)

    async def failing_syncs(self) -> None:
        member = self._claim()
        if member is None:
            return
        member.disk_is_sick = True
        member.host.disk.syncs_fail = True
        await self._wait()
        self._cluster.kill(member)
        member.host.disk.syncs_fail = False
        await self._restart(member, self._cluster.power_off)
        member.disk_is_sick = False

    async def _restart(self, member: Member | None, end: Callable[[Member], None]) -> None:
        if member is None:
            return
        end(member)
        await self._wait()
        if self._random.random() < 0.2:
            member.host.disk.steps_until_power_cut = self._random.randint(1, 40)
        await self._bring_up(member)
        member.host.disk.steps_until_power_cut = None
        if not member.host.is_alive:
            await self._bring_up(member)
        member.is_claimed = False

    async def _bring_up(self, member: Member) -> None:
        try:
            await self._cluster.bring_up(member)
        except QuorateError as error:
            self._cluster.findings.report("nodes start", f"node {member.node_id} refuses: {error}")

    async def _freeze(self, member: Member | None) -> None:
        if member is not None:
            member.host.freeze()
            await self._wait()
            member.host.thaw()
            member.is_claimed = False

    async def _cut(self, directions: Iterable[tuple[str, str]]) -> None:
        network, cut = self._world.network, list(directions)
        for direction in cut:
            network.block(*direction)
            self._blocked[direction] = self._blocked.get(direction, 0) + 1
        await self._wait()
        for direction in cut:
            self._blocked[direction] -= 1
            if not self._blocked[direction]:
                network.unblock(*direction)

    def _claim(self) -> Member | None:
        free = [member for member in self._cluster.present if not member.is_claimed]
        return self._claimed(self._random.choice(free)) if free else None

    def _claim_leader(self) -> Member | None:
        leader = self._cluster.leader()
        return None if leader is None or leader.is_claimed else self._claimed(leader)

    def _claimed(self, member: Member) -> Member:
        member.is_claimed = True
        return member

    def _two(self) -> tuple[Member, Member]:
        members = self._cluster.members
        one, two = self._random.sample(members, 2) if len(members) > 1 else (members[0], members[0])
        return one, two

    async def _wait(self) -> None:
        await self._world.sleep(self._random.random() ** 2 * self._longest_s)
        self.last_repair_at = self._world.now


def _both(one: str, two: str) -> tuple[tuple[str, str], tuple[str, str]]:
    return (one, two), (two, one)


FAULTS: dict[str, Callable[[ClusterFaults], Awaitable[None]]] = {
    fault.__name__: fault
    for fault in (
        ClusterFaults.kill,
        ClusterFaults.kill_leader,
        ClusterFaults.power_off,
        ClusterFaults.power_off_leader,
        ClusterFaults.kill_all,
        ClusterFaults.power_off_all,
        ClusterFaults.power_cut_in_a_write,
        ClusterFaults.stop,
        ClusterFaults.freeze,
        ClusterFaults.freeze_leader,
        ClusterFaults.isolate,
        ClusterFaults.isolate_leader_from_peers,
        ClusterFaults.split,
        ClusterFaults.block_one_way,
        ClusterFaults.mute_leader,
        ClusterFaults.flapping_connections,
        ClusterFaults.sick_link,
        ClusterFaults.slow_disk,
        ClusterFaults.clock_jump,
        ClusterFaults.fill_disk,
        ClusterFaults.failing_syncs,
        ClusterFaults.rot,
    )
}
