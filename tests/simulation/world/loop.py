"""The event loop of one life of a host, on virtual time and the simulated network.

A handle, a timer or a task belongs to the loop that it was made on, and so to the host: when the host dies, all of it
is dropped; when the host is frozen, all of it waits. Whatever code of a host runs, its own loop is the running one.
"""

import asyncio
import socket
from asyncio.events import Handle, TimerHandle
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextvars import Context
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, TypeVarTuple

from tests.simulation.world.due import Due, LoopHandle, LoopTimer
from tests.simulation.world.executor import SimulatedExecutor
from tests.simulation.world.scheduler import LoopState, Scheduler

if TYPE_CHECKING:
    from tests.simulation.world.network import Network
    from tests.simulation.world.transport import SimulatedTransport

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class LoopOwner(Protocol):
    """The host that a loop belongs to."""

    name: str
    address: str

    def went_wrong(self, message: str, error: BaseException | None) -> None:
        """Nobody in the host's code took care of this."""
        ...


class SimulatedLoop(asyncio.AbstractEventLoop):
    def __init__(self, owner: LoopOwner, scheduler: Scheduler, network: "Network") -> None:
        self.owner = owner
        self.state = LoopState.RUNNING
        self.held: list[Due] = []
        #: The connections that are open, by number.
        self.transports: dict[int, SimulatedTransport] = {}
        self.default_executor: SimulatedExecutor | None = None
        self._scheduler = scheduler
        self._ready = scheduler.ready
        self._network = network
        self._numbers = 0

    def die(self) -> list["asyncio.Task[Any]"]:
        """Run nothing more. The tasks that were not done are returned; dropped, they would run their ``finally``."""
        self.state = LoopState.DEAD
        self.held.clear()
        return list(asyncio.all_tasks(self))

    def freeze(self) -> None:
        self.state = LoopState.FROZEN

    def thaw(self) -> None:
        self.state = LoopState.RUNNING
        self._ready.extend(self.held)
        self.held.clear()

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Time and callbacks.

    def time(self) -> float:
        return self._scheduler.now

    def call_soon(self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None) -> Handle:
        handle = LoopHandle(callback, args, self, context)
        if self.state is not LoopState.DEAD:
            self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        timer = LoopTimer(callback, args, self, context)
        if self.state is not LoopState.DEAD:
            self._scheduler.add_timer(timer, self._scheduler.now + delay)
        return timer

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> TimerHandle:
        timer = LoopTimer(callback, args, self, context)
        if self.state is not LoopState.DEAD:
            self._scheduler.add_timer(timer, when)
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        self._scheduler.timer_cancelled()

    # Futures and tasks.

    def create_future(self) -> "asyncio.Future[Any]":
        return _NumberedFuture(loop=self)

    def create_task(self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> "asyncio.Task[T]":
        return _NumberedTask(coro, loop=self, **options)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        chosen = executor or self.default_executor
        assert chosen is not None
        if isinstance(chosen, SimulatedExecutor):
            return chosen.start(func, args)
        return asyncio.wrap_future(chosen.submit(func, *args), loop=self)

    # Connections.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        ssl: object = None,
        **_options: Any,
    ) -> asyncio.AbstractServer:
        assert ssl is None, "the simulated network has no TLS"
        return self._network.listen(self, protocol_factory, host, port)

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: object = None,
        **_options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        assert ssl is None, "the simulated network has no TLS"
        connected: asyncio.Future[asyncio.BaseProtocol] = self.create_future()
        transport = self._network.connect(self, protocol_factory, host, port, connected)
        try:
            protocol = await connected
        except BaseException:
            transport.abandon()
            raise
        return transport, protocol

    async def getaddrinfo(  # type: ignore[override]
        self, host: str, port: int, **_options: int
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        address = self._network.resolve(self.owner.address, host)
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port)))]

    # What is left of the interface.

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.state is not LoopState.DEAD:
            self.owner.went_wrong(context["message"], context.get("exception"))

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.state is LoopState.RUNNING

    def is_closed(self) -> bool:
        return self.state is LoopState.DEAD

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Nobody sends signals here."""


class _NumberedFuture(asyncio.Future[Any]):
    """Its hash is a number of its loop and not its address, so that sets of futures have one order in all runs."""

    _number = 0

    def __hash__(self) -> int:
        # Most are in no set ever.
        if not self._number:
            self._number = self.get_loop().next_number()  # type: ignore[attr-defined]
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    _number = 0

    __hash__ = _NumberedFuture.__hash__
