"""A node as a process: the real loop, clock, disk and threads, and signals that stop it in good order."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from functools import partial
from random import SystemRandom

from quorate.broker.client_limits import connection_caps
from quorate.broker.client_listeners import ClientListener, ClientListeners
from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.descriptors import DescriptorBudget, DescriptorWatch, SpareDescriptors, settle_budget
from quorate.broker.loop_watchdog import LoopHolds, LoopWatchdog
from quorate.broker.memory import ShortCollections, freeze_everything, return_large_blocks
from quorate.broker.node import Environment, NodeEnd, RunningNode
from quorate.broker.start import start_node
from quorate.kernel import native
from quorate.kernel.address import Address
from quorate.kernel.tasks import awaited_task
from quorate.storage.os_disk import OsDisk
from quorate.storage.pooled_disk import PooledDisk
from quorate.transport.acceptor import Door
from quorate.transport.connection import ConnectionLimits, RequestDeadline
from quorate.transport.reserved_address import ReservedAddress, listen_error
from quorate.transport.server import ListenerConfig, Server

logger = logging.getLogger(__name__)

#: Enough that one slow sync does not hold up the others.
_WORKER_THREADS = 8
#: How long the loop waits for a worker that computes in Python, again after each call that lets the workers run: 5 ms
#: unless told, which a turn with many answers to send pays many times.
_SWITCH_INTERVAL_S = 0.0005


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def run_node(config: NodeConfig, on_ready: Callable[[Address], None]) -> None:
    """Run a node until SIGINT or SIGTERM."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    with lock_data_dir(config.data_dir):
        budget = settle_budget()
        try:
            import uvloop
        except ImportError:
            asyncio.run(_run(config, budget, on_ready))
        else:
            uvloop.run(_run(config, budget, on_ready))


async def _run(config: NodeConfig, budget: DescriptorBudget, on_ready: Callable[[Address], None]) -> None:
    loop = asyncio.get_running_loop()
    descriptors = DescriptorWatch(config.node_id, budget, loop)
    return_large_blocks()
    end = NodeEnd(config.node_id)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, end.ask_for)
    with (
        ThreadPoolExecutor(_WORKER_THREADS, thread_name_prefix="worker") as executor,
        ThreadPoolExecutor(1, thread_name_prefix="quorum") as quorum_executor,
    ):
        environment = Environment(
            loop=loop,
            clock=SystemClock(),
            disk=PooledDisk(
                OsDisk(),
                budget.files,
                spare=SpareDescriptors(budget.limit).lifted,
                on_exhausted=descriptors.ran_out_in_any_thread,
            ),
            executor=executor,
            quorum_executor=quorum_executor,
            random=SystemRandom(),
            descriptors=descriptors,
        )
        watchdog = LoopWatchdog(loop, LoopHolds())
        watchdog.start()
        freeze_everything()
        collections = ShortCollections()
        collections.install(loop)
        try:
            await _serve(config, environment, end, on_ready)
        finally:
            collections.remove()
            watchdog.stop()
            descriptors.stop()


async def _serve(
    config: NodeConfig, environment: Environment, end: NodeEnd, on_ready: Callable[[Address], None]
) -> None:
    starting = awaited_task(environment.loop, ServedNode.start(config, environment, end))
    ending = awaited_task(environment.loop, end.is_due.wait())
    await asyncio.wait([starting, ending], return_when=asyncio.FIRST_COMPLETED)
    ending.cancel()
    if not starting.done():
        # It still waits for the quorum; there is nothing yet that others could take over.
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await starting
        end.check()
        return
    served = starting.result()
    on_ready(config.advertised or config.listen)
    await end.is_due.wait()
    await served.stop(hands_over=end.failure is None)
    end.check()


class ServedNode:
    """A node and its door to clients."""

    def __init__(self, node: RunningNode, server: Server, listeners: ClientListeners) -> None:
        self.node = node
        self._server = server
        self._listeners = listeners

    @classmethod
    async def start(cls, config: NodeConfig, environment: Environment, end: NodeEnd) -> "ServedNode":
        """Bring the node up and open its door. The cluster gets to know it only when it has its addresses."""
        level = logging.WARNING if native.choice.is_surprising else logging.INFO
        logger.log(level, "kernel chosen node=%s kernel=%r", config.node_id, str(native.choice))
        listeners = await environment.loop.run_in_executor(environment.executor, ClientListeners, config)
        with ExitStack() as held:
            reserved = [held.enter_context(ReservedAddress(each.listener.address)) for each in listeners.all]
            node = await start_node(config, environment, end)
            listeners.start(node.services, environment.random)
            server = _make_server(node, environment.descriptors)
            try:
                await server.start([_door(*each, node) for each in zip(reserved, listeners.all, strict=True)])
            except OSError as error:
                await listeners.stop()
                await node.stop()
                raise listen_error(config.listen, error) from None
        for listener in config.listeners.all:
            logger.info(
                "node started node=%s listener=%s protocol=%s listen=%s",
                config.node_id,
                listener.name,
                listener.protocol,
                listener.address,
            )
        return cls(node, server, listeners)

    async def stop(self, *, hands_over: bool) -> None:
        """Close the door and stop; before that, hand over to other nodes what this one leads, or do not."""
        config = self.node.config
        logger.info("node stops node=%s", config.node_id)
        if hands_over:
            await self.node.leave()
        self.node.release_waiting_requests()
        await self._listeners.stop()
        await self._server.stop(config.stop_grace_ms if hands_over else 0)
        await self.node.stop()
        logger.info("node stopped node=%s", config.node_id)


def _door(reserved: ReservedAddress, listener: ClientListener, node: RunningNode) -> Door:
    return Door(
        name=listener.listener.name,
        sockets=reserved.open(),
        open_connection=partial(listener.open, node.dispatch),
        tls=None if listener.tls is None else listener.tls.context,
    )


def _make_server(node: RunningNode, descriptors: DescriptorWatch | None) -> Server:
    config, services = node.config, node.services
    return Server(
        node.loop,
        ListenerConfig(
            host=config.listen.host,
            port=config.listen.port,
            idle_timeout_ms=services.int_config("connections.max.idle.ms"),
            most_connections=None if descriptors is None else descriptors.budget.connections,
            limits=ConnectionLimits(
                max_frame_bytes=services.int_config("socket.request.max.bytes"),
                send_buffer_bytes=services.int_config("socket.send.buffer.bytes"),
            ),
            deadline=RequestDeadline(timeout_ms=services.int_config("socket.request.timeout.ms")),
            queued_bytes=services.int_config("queued.max.request.bytes"),
        ),
        node.dispatch.serve,
        caps=lambda: connection_caps(node.metadata.image, services.view),
        rates=services.address_quotas.rates,
        on_crowded=_nothing if descriptors is None else partial(descriptors.ran_out, "connection"),
    )


def _nothing() -> None:
    """What an in-process node does about the descriptors of a process that is not its own."""
