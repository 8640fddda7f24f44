"""A node as a process: the real loop, clock, disk and threads, and signals that stop it in good order."""

import asyncio
import logging
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from random import SystemRandom

from quorate.broker.config import NodeConfig
from quorate.broker.data_dir_lock import lock_data_dir
from quorate.broker.dispatch import Dispatcher
from quorate.broker.node import Environment, Node
from quorate.kernel.address import Address
from quorate.kernel.errors import QuorateError
from quorate.storage.os_disk import OsDisk
from quorate.transport.connection import ConnectionLimits
from quorate.transport.server import ListenerConfig, Server

logger = logging.getLogger(__name__)

#: Enough that one slow sync does not hold up the others.
_WORKER_THREADS = 8


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def run_node(config: NodeConfig, on_ready: Callable[[Address], None]) -> None:
    """Run a node until SIGINT or SIGTERM."""
    with lock_data_dir(config.data_dir):
        try:
            import uvloop
        except ImportError:
            asyncio.run(_run(config, on_ready))
        else:
            uvloop.run(_run(config, on_ready))


async def _run(config: NodeConfig, on_ready: Callable[[Address], None]) -> None:
    loop = asyncio.get_running_loop()
    stop_requested = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop_requested.set)
    with ThreadPoolExecutor(_WORKER_THREADS, thread_name_prefix="worker") as executor:
        environment = Environment(
            loop=loop, clock=SystemClock(), disk=OsDisk(), executor=executor, random=SystemRandom()
        )
        node = Node(config, environment)
        await _serve(node, on_ready, stop_requested)


async def _serve(node: Node, on_ready: Callable[[Address], None], stop_requested: asyncio.Event) -> None:
    config = node.config
    await node.start(config.advertised or config.listen)
    server = Server(
        node.loop,
        ListenerConfig(
            host=config.listen.host,
            port=config.listen.port,
            idle_timeout_ms=node.int_config("connections.max.idle.ms"),
            limits=ConnectionLimits(
                max_frame_bytes=node.int_config("socket.request.max.bytes"),
                send_buffer_bytes=node.int_config("socket.send.buffer.bytes"),
            ),
        ),
        lambda connection: Dispatcher(node, connection),
    )
    try:
        await server.start()
    except OSError as error:
        await node.stop()
        raise QuorateError(f"cannot listen on {config.listen}: {error.strerror or error}") from None
    logger.info("node started node=%s listen=%s", config.node_id, config.listen)
    on_ready(config.advertised or config.listen)
    await _until_stopped(node, stop_requested)
    logger.info("node stops node=%s", config.node_id)
    if node.failure is None:
        await node.leave()
    node.release_waiting_requests()
    await server.stop(config.stop_grace_ms)
    await node.stop()
    logger.info("node stopped node=%s", config.node_id)
    if node.failure is not None:
        raise QuorateError(f"node {config.node_id} cannot go on: {node.failure}")


async def _until_stopped(node: Node, stop_requested: asyncio.Event) -> None:
    waits = [asyncio.ensure_future(stop_requested.wait()), asyncio.ensure_future(node.failed.wait())]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
