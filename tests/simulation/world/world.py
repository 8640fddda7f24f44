"""The world: hosts, network and time, made from one seed, and the ways to run it."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import suppress
from itertools import count
from random import Random
from typing import Any, TypeVar

from tests.simulation.world.executor import WorkDelay
from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.link import LinkSettings
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.trace import Trace

T = TypeVar("T")

_SHOWN_LINES = 25
#: How often ``until`` looks.
_POLL_S = 0.005
_WORLDS_BETWEEN_FREEZES = 50
_made = count()


class SimulationFailed(AssertionError):
    """Code of a host raised something that nothing took care of."""


class World:
    """Use as a context manager; at its end everything that is still under way is dropped."""

    def __init__(self, seed: int, *, link: LinkSettings | None = None, work_delay: WorkDelay | None = None) -> None:
        self.seed = seed
        self.scheduler = Scheduler()
        self.trace = Trace(self.scheduler)
        #: For decisions of the scenario.
        self.random = Random(f"{seed}/scenario")
        self.network = Network(self.scheduler, Random(f"{seed}/network"), self.trace, link or LinkSettings())
        self.work_delay = work_delay or WorkDelay()
        self.hosts: dict[str, SimulatedHost] = {}
        self._buried: list[asyncio.Task[Any]] = []
        _forget_earlier_worlds()
        #: Where the scenario itself runs; it is never at fault.
        self.scenario = SimulatedHost(self, "scenario", "10.255.255.1")

    def __enter__(self) -> "World":
        return self

    def __exit__(self, error_type: object, *_: object) -> None:
        try:
            if error_type is None:
                gc.collect()  # A task that failed unseen speaks up when it is collected.
                self.scheduler.raise_failure()
        finally:
            self.close()

    @property
    def now(self) -> float:
        return self.scheduler.now

    def add_host(self, name: str, address: str | None = None) -> SimulatedHost:
        """A host that has booted and runs nothing yet."""
        host = SimulatedHost(self, name, address or f"10.0.0.{len(self.hosts) + 1}")
        self.hosts[name] = host
        return host

    # From outside: plain functions that let time pass.

    def run(self, scenario: Coroutine[Any, Any, T], *, within_s: float = 600) -> T:
        """Run a coroutine on the scenario's own host until it is done."""
        task = self.scenario.loop.create_task(scenario)
        self.scheduler.run(task.done, self.now + within_s)
        return task.result()

    def run_for(self, seconds: float) -> None:
        self.scheduler.run_to(self.now + seconds)

    def run_until(self, condition: Callable[[], bool], *, within_s: float = 60) -> None:
        """Run until a condition holds; it is looked at after every step."""
        self.scheduler.run(condition, self.now + within_s)

    # From inside a scenario.

    async def sleep(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        timer = loop.call_later(seconds, done.set_result, None)
        try:
            await done
        finally:
            timer.cancel()

    async def until(self, condition: Callable[[], bool], *, within_s: float = 60) -> None:
        deadline = self.now + within_s
        while not condition():
            assert self.now < deadline, f"{condition} does not hold after {within_s} s"
            await self.sleep(_POLL_S)

    # For hosts.

    def fail(self, host: SimulatedHost, message: str, error: BaseException | None) -> None:
        if self.scheduler.failure is None:
            lines = "\n".join(list(self.trace.last_lines)[-_SHOWN_LINES:])
            failure = SimulationFailed(
                f"seed {self.seed}, {self.now:.6f} s, host {host.name}: {message}: {error!r}\n{lines}"
            )
            failure.__cause__ = error
            self.scheduler.failure = failure

    def bury(self, tasks: "list[asyncio.Task[Any]]") -> None:
        """Keep the tasks of a dead host: thrown away, they would run their ``finally`` in a later life."""
        self._buried += tasks

    def close(self) -> None:
        for host in [*self.hosts.values(), self.scenario]:
            host.disk.is_off = True
            self.bury(host.loop.die())
        for task in self._buried:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coroutine = task.get_coro()
            if isinstance(coroutine, Coroutine):
                with suppress(BaseException):
                    coroutine.close()
        self._buried.clear()


def _forget_earlier_worlds() -> None:
    """Collect them, and now and then freeze all else, so that no collection looks through what was there before them.

    What is frozen is no garbage for as long as it is, and that holds for a world, too.
    """
    if next(_made) % _WORLDS_BETWEEN_FREEZES:
        gc.collect()
        return
    gc.unfreeze()
    gc.collect()
    gc.freeze()
