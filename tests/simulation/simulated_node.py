"""A whole node on a simulated disk, without sockets: frames go straight to its dispatcher.

What blocks is queued instead of run in threads, and the test decides when each piece runs: so a power cut can come
between any append, sync and acknowledgement.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar, cast

from quorate.broker.config import NodeConfig
from quorate.broker.node import Environment, NodeEnd, RunningNode
from quorate.broker.request_context import Origin
from quorate.broker.start import start_node
from quorate.kernel.address import Address
from quorate.kernel.ids import NodeId
from quorate.kernel.ports import FileRegion
from quorate.kernel.settings import Durability
from quorate.protocol.frames import decode_response, encode_request
from quorate.protocol.schema import Request, Response
from quorate.transport.outbox import Reply
from tests.simulation.disk import SimulatedDisk

R = TypeVar("R", bound=Response)

ADDRESS = Address("127.0.0.1", 9092)
DATA_DIR = "/data"


class QueuedExecutor(Executor):
    """Keeps work until it is told to run it."""

    def __init__(self) -> None:
        self.queue: list[tuple[Future[Any], Callable[[], Any]]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.queue.append((future, lambda: function(*args, **kwargs)))
        return future

    def run(self, index: int) -> None:
        future, work = self.queue.pop(index)
        try:
            result = work()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)


class SimulatedClock:
    def __init__(self) -> None:
        self._now_ms = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms


class _Client:
    peer_host = "client"

    def mute(self, duration_ms: int) -> None:
        """Nothing is sent that a quota would hold back."""

    def expect_bulky(self, reply: object) -> None:
        pass

    def hold(self, until: "asyncio.Future[Any]") -> None:
        """A test sends the next request when it means to."""


class SimulatedNode:
    """One life of a node: from a start on whatever the disk holds to a stop or a power cut."""

    def __init__(self, disk: SimulatedDisk, clock: SimulatedClock, random: Random) -> None:
        self._random = random
        self.executor = QueuedExecutor()
        self.quorum_executor = QueuedExecutor()
        self._environment = Environment(
            loop=asyncio.get_running_loop(),
            clock=clock,
            disk=disk,
            executor=self.executor,
            quorum_executor=self.quorum_executor,
            random=random,
        )
        #: From its start on.
        self.node: RunningNode

    @property
    def has_work(self) -> bool:
        return bool(self.executor.queue or self.quorum_executor.queue)

    async def start(self, configs: Mapping[str, str] | None = None) -> None:
        config = NodeConfig(
            node_id=NodeId(7), data_dir=DATA_DIR, listen=ADDRESS, durability=Durability.FSYNC, configs=configs or {}
        )
        starting = start_node(config, self._environment, NodeEnd(config.node_id))
        self.node = await self.finish(asyncio.ensure_future(starting))
        self._dispatcher = self.node.dispatch.serve(cast(Any, _Client()))

    def log_in(self, origin: Origin) -> None:
        """What comes from now on comes from there."""
        self._dispatcher.origin = origin

    async def stop(self) -> None:
        await self.finish(asyncio.ensure_future(self.node.stop()))

    def send(self, request: Request, version: int) -> "asyncio.Future[Reply | None]":
        """Hand a request to the node; the future is its reply, when it comes."""
        frame = bytearray(b"".join(cast(list[bytes], encode_request(1, "client", request, version))[0:]))[4:]
        reply = self.dispatch(memoryview(frame))
        if isinstance(reply, asyncio.Future):
            return reply
        done: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        done.set_result(reply)
        return done

    def dispatch(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        return self._dispatcher(frame)

    async def call(self, request: Request, version: int, response_type: type[R]) -> R:
        """Send a request and run whatever its answer needs."""
        reply = await self.finish(self.send(request, version))
        return self.decode(reply, response_type, version)

    def decode(self, reply: Reply | None, response_type: type[R], version: int) -> R:
        assert reply is not None
        frame = b"".join(part.read(len(part)) if isinstance(part, FileRegion) else bytes(part) for part in reply)
        return decode_response(response_type, frame[4:], version)[1]

    async def run_some_work(self) -> None:
        """Run one queued piece of work, whichever, and let its consequences happen."""
        await self._run_one_of(self.executor, self.quorum_executor)

    async def finish(self, future: "asyncio.Future[Any]") -> Any:
        """Run queued work until the future is done."""
        return await self._finish_with(future, self.executor, self.quorum_executor)

    async def finish_without_partitions(self, future: "asyncio.Future[Any]") -> Any:
        """The same, while the disk does not get on with what partitions have written."""
        return await self._finish_with(future, self.quorum_executor)

    async def _run_one_of(self, *executors: QueuedExecutor) -> None:
        work = [(executor, index) for executor in executors for index in range(len(executor.queue))]
        if work:
            executor, index = self._random.choice(work)
            executor.run(index)
        await settle()

    async def _finish_with(self, future: "asyncio.Future[Any]", *executors: QueuedExecutor) -> Any:
        await settle()
        idle_rounds = 0
        while not future.done():
            if any(executor.queue for executor in executors):
                await self._run_one_of(*executors)
            else:
                assert (idle_rounds := idle_rounds + 1) < 2_000, "the node waits for nothing that could happen"
                await asyncio.wait([future], timeout=0.001)  # For the timers of the quorum.
        return future.result()


async def settle() -> None:
    """Let every callback that is due run."""
    for _ in range(12):
        await asyncio.sleep(0)
