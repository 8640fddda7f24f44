"""Faults at random, from the world's seed: one after the other, each ended again after a while."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from tests.simulation.world.host import HostDied, SimulatedHost
from tests.simulation.world.link import LinkSettings
from tests.simulation.world.world import World


class FaultMix(msgspec.Struct, frozen=True, kw_only=True):
    """How often which fault is chosen; 0 for never."""

    kill: int = 3
    power_off: int = 3
    power_cut_in_a_write: int = 2
    freeze: int = 3
    isolate: int = 3
    block_one_way: int = 3
    break_connections: int = 2
    slow_link: int = 2
    clock_jump: int = 1
    fill_disk: int = 1


class RandomFaults:
    """``restart`` starts the code of a host that has just booted, and returns when it runs."""

    def __init__(
        self,
        world: World,
        hosts: Sequence[SimulatedHost],
        restart: Callable[[SimulatedHost], Awaitable[object]],
        *,
        mix: FaultMix | None = None,
        longest_s: float = 5.0,
    ) -> None:
        self._world = world
        self._hosts = hosts
        self._restart = restart
        self._longest_s = longest_s
        self._weights = msgspec.structs.asdict(mix or FaultMix())

    async def run(self, count: int) -> None:
        """Part of a scenario: that many faults, then all is well again."""
        random = self._world.random
        for _ in range(count):
            (name,) = random.choices(list(self._weights), list(self._weights.values()))
            fault: Callable[[SimulatedHost], Awaitable[None]] = getattr(self, f"_{name}")
            await fault(random.choice(self._hosts))
            await self._wait()

    async def _kill(self, host: SimulatedHost) -> None:
        host.kill()
        await self._wait()
        await self._bring_back(host)

    async def _power_off(self, host: SimulatedHost) -> None:
        host.power_off()
        await self._wait()
        await self._bring_back(host)

    async def _power_cut_in_a_write(self, host: SimulatedHost) -> None:
        host.disk.steps_until_power_cut = self._world.random.randint(1, 30)
        await self._wait()
        host.power_off()
        await self._wait()
        await self._bring_back(host)

    async def _freeze(self, host: SimulatedHost) -> None:
        host.freeze()
        await self._wait()
        host.thaw()

    async def _isolate(self, host: SimulatedHost) -> None:
        self._world.network.isolate(host.name)
        await self._wait()
        self._world.network.heal()

    async def _block_one_way(self, host: SimulatedHost) -> None:
        other = self._other(host)
        self._world.network.block(host.name, other.name)
        await self._wait()
        self._world.network.unblock(host.name, other.name)

    async def _break_connections(self, host: SimulatedHost) -> None:
        host.break_connections(self._other(host))

    async def _slow_link(self, host: SimulatedHost) -> None:
        link = self._world.network.link(host.name, self._other(host).name)
        usual = link.settings
        link.settings = LinkSettings(delay_ms=20, jitter_ms=80, loss_probability=0.2, bytes_per_second=50_000)
        await self._wait()
        link.settings = usual

    async def _clock_jump(self, host: SimulatedHost) -> None:
        host.clock.jump(self._world.random.choice([-3_600_000, -5_000, 5_000, 3_600_000]))

    async def _fill_disk(self, host: SimulatedHost) -> None:
        """Somebody makes room after a while, and starts the process again."""
        free_bytes, host.disk.free_bytes = host.disk.free_bytes, self._world.random.randrange(20_000)
        await self._wait()
        host.kill()
        host.disk.free_bytes = free_bytes
        await self._bring_back(host)

    def _other(self, host: SimulatedHost) -> SimulatedHost:
        return self._world.random.choice([other for other in self._hosts if other is not host])

    async def _wait(self) -> None:
        await self._world.sleep(self._world.random.random() ** 2 * self._longest_s)

    async def _bring_back(self, host: SimulatedHost) -> None:
        """Boot, and again where the power fails in the middle of the start."""
        while True:
            if not host.is_alive:
                host.boot()
            try:
                await self._restart(host)
            except HostDied:
                continue
            return
