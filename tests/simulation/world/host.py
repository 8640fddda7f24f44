"""A machine with one process on it. It can be killed, lose its power, be frozen, and start again on what its disk kept.

Each life has a loop, worker threads and a random source of its own; the disk, the clock and the address stay.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Protocol, TypeVar

from quorate.broker.node import Environment
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.simulation.world.clock import HostClock
from tests.simulation.world.executor import SimulatedExecutor, WorkDelay
from tests.simulation.world.loop import SimulatedLoop
from tests.simulation.world.network import Network
from tests.simulation.world.scheduler import LoopState, Scheduler
from tests.simulation.world.trace import Trace

T = TypeVar("T")


class HostDied(Exception):
    """What was awaited will not come: the host was killed or lost its power."""


class Surroundings(Protocol):
    """The world, as its hosts know it."""

    seed: int
    scheduler: Scheduler
    network: Network
    trace: Trace
    #: Of new lives.
    work_delay: WorkDelay

    def fail(self, host: "SimulatedHost", message: str, error: BaseException | None) -> None: ...

    def bury(self, tasks: "list[asyncio.Task[Any]]") -> None: ...


#: The secret of whatever cluster the host is in.
SECRET_FILE = "/cluster.secret"
SECRET = "0123456789abcdef" * 2


class MemoryFiles:
    """Implements ``kernel.ports.OperatorFiles``. They are no part of the disk, and never fail."""

    def __init__(self) -> None:
        self.contents = {SECRET_FILE: SECRET.encode()}

    def read(self, path: str) -> bytes:
        if path not in self.contents:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory")
        return self.contents[path]

    def read_private(self, path: str) -> bytes:
        return self.read(path)


class SimulatedHost:
    def __init__(self, world: Surroundings, name: str, address: str) -> None:
        self.name = name
        self.address = address
        self.lives = 0
        self.clock = HostClock(world.scheduler)
        self.operator_files = MemoryFiles()
        self.disk = self._new_disk(f"{world.seed}/{name}/disk")
        #: Whether what was not synced before this life is gone.
        self.was_off = False
        self._world = world
        self._has_power = True
        self._spawned: dict[asyncio.Task[Any], None] = {}
        #: Who waits from another host, and for what.
        self._waiting: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        world.network.add_host(name, address)
        self._begin_life()

    @property
    def is_alive(self) -> bool:
        return self.loop.state is not LoopState.DEAD

    # Code on the host.

    def spawn(self, coroutine: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Start something that nobody waits for; if it fails, so does the run."""
        task = self.loop.create_task(coroutine)
        self._spawned[task] = None
        task.add_done_callback(self._check_spawned)
        return task

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on this host and wait for it from another. Raises ``HostDied`` where the answer never comes."""
        waiting: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if not self.is_alive:
            coroutine.close()
            raise HostDied(self.name)
        task = self.loop.create_task(coroutine)
        task.add_done_callback(lambda done: _hand_over(done, waiting))
        self._waiting[waiting] = task
        try:
            return await waiting
        finally:
            self._waiting.pop(waiting, None)

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self.loop.call_soon(callback, *args)

    # Faults.

    def kill(self) -> None:
        """As kill -9: the process is gone, its peers are told, and the operating system keeps what was written."""
        if self.is_alive:
            self._world.trace.note(f"kill {self.name}")
            for transport in list(self.loop.transports.values()):
                transport.process_died()
            self._end_life()

    def power_off(self) -> None:
        """The machine falls silent; what was not synced is lost."""
        if self._has_power:
            self._world.trace.note(f"power off {self.name}")
            self._has_power = False
            self.disk.is_off = True
            self._world.network.power_changed(self.address, False)
            for transport in list(self.loop.transports.values()):
                transport.power_lost()
            self._end_life()

    def boot(self) -> None:
        """A new life, after ``kill`` or ``power_off``. The caller starts the code that it shall run."""
        assert not self.is_alive, f"{self.name} is running"
        self.was_off = not self._has_power
        if not self._has_power:
            self._has_power = True
            self.disk.crash()
            self._world.network.power_changed(self.address, True)
        self._begin_life()

    def replace_disk(self) -> None:
        """An empty one in its place, while the host is down."""
        assert not self.is_alive, f"{self.name} is running"
        self._world.trace.note(f"replace the disk of {self.name}")
        self.disk = self._new_disk(f"{self._world.seed}/{self.name}/disk after life {self.lives}")

    def freeze(self) -> None:
        """As SIGSTOP: nothing of the process runs, its connections stay open."""
        if self.loop.state is LoopState.RUNNING:
            self._world.trace.note(f"freeze {self.name}")
            self.loop.freeze()

    def thaw(self) -> None:
        """As SIGCONT: all that was due meanwhile comes now."""
        if self.loop.state is LoopState.FROZEN:
            self._world.trace.note(f"thaw {self.name}")
            self.loop.thaw()

    def break_connections(self, other: "SimulatedHost") -> None:
        """Reset every connection between the two hosts, as a firewall that lost its table does."""
        self._world.trace.note(f"break {self.name} - {other.name}")
        for host, peer in ((self, other), (other, self)):
            for transport in list(host.loop.transports.values()):
                if transport.get_extra_info("peername")[0] == peer.address:
                    transport.break_off()

    def went_wrong(self, message: str, error: BaseException | None) -> None:
        if not isinstance(error, PowerCutError):
            self._world.fail(self, message, error)

    def _new_disk(self, seed: str) -> SimulatedDisk:
        disk = SimulatedDisk(Random(seed))
        disk.on_power_cut = self.power_off
        return disk

    def _begin_life(self) -> None:
        self.lives += 1
        world = self._world
        world.trace.note(f"boot {self.name}")
        random = Random(f"{world.seed}/{self.name}/life {self.lives}")
        # What the loop leaves out (descriptors, processes, datagrams) no node may use.
        self.loop = SimulatedLoop(self, world.scheduler, world.network)  # type: ignore[abstract]
        self.executor = SimulatedExecutor(
            self.loop,
            Random(random.getrandbits(64)),
            world.work_delay,
            lambda text: world.trace.note(f"{self.name} {text}"),
        )
        self.loop.default_executor = self.executor
        self.environment = Environment(
            loop=self.loop,
            clock=self.clock,
            disk=self.disk,
            executor=self.executor,
            quorum_executor=self.executor,
            random=random,
            operator_files=self.operator_files,
        )

    def _end_life(self) -> None:
        if not self.is_alive:
            return
        self._world.network.stop_listening(self.loop)
        self._world.bury(self.loop.die())
        self._spawned.clear()
        waiting, self._waiting = self._waiting, {}
        for future in waiting:
            if not future.done():
                future.set_exception(HostDied(self.name))

    def _check_spawned(self, task: "asyncio.Task[Any]") -> None:
        self._spawned.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.went_wrong("a spawned task failed", error)


def _hand_over(done: "asyncio.Task[T]", waiting: "asyncio.Future[T]") -> None:
    if waiting.done():
        return
    if done.cancelled():
        waiting.cancel()
    elif (error := done.exception()) is not None:
        waiting.set_exception(error)
    else:
        waiting.set_result(done.result())
