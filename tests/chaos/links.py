"""The links between nodes: a proxy in front of each node's peer listener, which can hold bytes back, one way or both.

TCP loses nothing, so a lossy link is one that stalls now and then, and a cut is silence until it heals. Each direction
of a connection is on its own: a node may hear and not be heard.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from random import Random

from tests.peers.child_process import free_port

_CHUNK_BYTES = 1 << 16


class Direction:
    """What happens to bytes that travel one way."""

    def __init__(self) -> None:
        self.delay_s = 0.0
        #: How many of the pieces that travel meet a stall, and for how long.
        self.stall_probability = 0.0
        self.stall_s = 0.3
        self.is_cut = False


_Way = Callable[[], Direction]


class Link:
    """Everything that other nodes say to one node, and what it answers on their connections."""

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.target_port = target_port
        self.inbound = Direction()
        self.outbound = Direction()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def heal(self) -> None:
        self.inbound = Direction()
        self.outbound = Direction()


class Links:
    """All proxies, on a loop in a thread of their own."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="links", daemon=True)
        self._thread.start()
        self._connections: set[asyncio.StreamWriter] = set()
        #: All that travels, where somebody listens in.
        self.recorded: bytearray | None = None

    def open(self, target_port: int) -> Link:
        link = Link(target_port)
        asyncio.run_coroutine_threadsafe(self._listen(link), self._loop).result(10)
        return link

    def break_all(self) -> None:
        """Reset every connection, as a firewall that lost its table does."""
        self._loop.call_soon_threadsafe(self._break_all)

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _listen(self, link: Link) -> None:
        await asyncio.start_server(lambda r, w: self._accept(link, r, w), "127.0.0.1", link.port)

    async def _accept(self, link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", link.target_port)
        except OSError:
            writer.transport.abort()
            return
        for one in (writer, target_writer):
            self._connections.add(one)
        ways = [
            self._loop.create_task(self._carry(lambda: link.inbound, reader, target_writer)),
            self._loop.create_task(self._carry(lambda: link.outbound, target_reader, writer)),
        ]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for one in (writer, target_writer):
            self._connections.discard(one)
            one.transport.abort()

    async def _carry(self, way: _Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while chunk := await reader.read(_CHUNK_BYTES):
                if self.recorded is not None:
                    self.recorded += chunk
                await self._hold_back(way)
                writer.write(chunk)
                await writer.drain()

    async def _hold_back(self, way: _Way) -> None:
        if way().delay_s:
            await asyncio.sleep(self._random.uniform(0, 2 * way().delay_s))
        if self._random.random() < way().stall_probability:
            await asyncio.sleep(way().stall_s)
        while way().is_cut:
            await asyncio.sleep(0.02)

    def _break_all(self) -> None:
        for writer in self._connections:
            writer.transport.abort()
