"""A node as a process: the real loop, clock, disk and threads, and signals that stop it in good order."""

import asyncio
import logging
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from random import SystemRandom

from quorate.broker.client_limits import connection_caps
from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.descriptors import DescriptorBudget, DescriptorWatch, SpareDescriptors, settle_budget
from quorate.broker.dispatch import Dispatcher
from quorate.broker.loop_watchdog import LoopWatchdog
from quorate.broker.memory import ShortCollections, freeze_everything, return_large_blocks
from quorate.broker.node import Environment, Node
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.storage.os_disk import OsDisk
from quorate.storage.pooled_disk import PooledDisk
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
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_requested.set)
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
        node = Node(config, environment)
        watchdog = LoopWatchdog(loop, node.loop_holds)
        watchdog.start()
        freeze_everything()
        collections = ShortCollections()
        collections.install(loop)
        try:
            await _serve(node, on_ready, stop_requested)
        finally:
            collections.remove()
            watchdog.stop()
            descriptors.stop()


async def _serve(node: Node, on_ready: Callable[[Address], None], stop_requested: asyncio.Event) -> None:
    config = node.config
    starting = node.loop.create_task(start_node(node))
    await _first_of(starting, stop_requested.wait(), node.failed.wait())
    if not starting.done():
        # It still waits for the quorum; there is nothing yet that others could take over.
        starting.cancel()
        await node.quorum.stop()
        _raise_failure(node)
        return
    server = starting.result()
    on_ready(config.advertised or config.listen)
    await _first_of(stop_requested.wait(), node.failed.wait())
    await stop_node(node, server, hands_over=node.failure is None)
    _raise_failure(node)


async def start_node(node: Node) -> Server:
    """Bring the node up and open its door to clients. The cluster gets to know it only when it has its addresses."""
    with ReservedAddress(node.config.listen) as reserved:
        await node.start(node.config.advertised or node.config.listen)
        return await _open_to_clients(node, reserved)


async def _open_to_clients(node: Node, reserved: ReservedAddress) -> Server:
    config, descriptors = node.config, node.descriptors
    server = Server(
        node.loop,
        ListenerConfig(
            host=config.listen.host,
            port=config.listen.port,
            idle_timeout_ms=node.int_config("connections.max.idle.ms"),
            most_connections=None if descriptors is None else descriptors.budget.connections,
            limits=ConnectionLimits(
                max_frame_bytes=node.int_config("socket.request.max.bytes"),
                send_buffer_bytes=node.int_config("socket.send.buffer.bytes"),
            ),
            deadline=RequestDeadline(timeout_ms=node.int_config("socket.request.timeout.ms")),
            queued_bytes=node.int_config("queued.max.request.bytes"),
        ),
        lambda connection: Dispatcher(node, connection),
        caps=lambda: connection_caps(node.metadata.image, node.view),
        on_crowded=_nothing if descriptors is None else partial(descriptors.ran_out, "connection"),
    )
    try:
        await server.start(reserved.open())
    except OSError as error:
        await node.stop()
        raise listen_error(config.listen, error) from None
    logger.info("node started node=%s listen=%s", config.node_id, config.listen)
    return server


def _nothing() -> None:
    """What an in-process node does about the descriptors of a process that is not its own."""


async def stop_node(node: Node, server: Server, *, hands_over: bool) -> None:
    """Close the door and stop; before that, hand over to other nodes what this one leads, or do not."""
    config = node.config
    logger.info("node stops node=%s", config.node_id)
    if hands_over:
        await node.leave()
    node.release_waiting_requests()
    await server.stop(config.stop_grace_ms if hands_over else 0)
    await node.stop()
    logger.info("node stopped node=%s", config.node_id)


def _raise_failure(node: Node) -> None:
    if node.failure is not None:
        raise QuorateError(f"node {node.config.node_id} cannot go on: {node.failure}")


async def _first_of(*things: Awaitable[object]) -> None:
    """Return when one of them is done; tasks go on, what else was waited for is given up."""
    waits = [asyncio.ensure_future(thing) for thing in things]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for thing, wait in zip(things, waits, strict=True):
        if thing is not wait:
            wait.cancel()
