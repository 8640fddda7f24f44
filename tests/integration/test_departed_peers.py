"""Peers that leave while nothing is read from them: what they waited for is given up, and their sockets are free."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest

from quorate.transport.connection import ConnectionLimits, FrameHandler, ServerConnection
from quorate.transport.outbox import Reply
from quorate.transport.server import ListenerConfig, Server

LIMITS = ConnectionLimits(max_frame_bytes=1000, max_requests_in_flight=3)
FRAME = struct.pack(">i", 4) + b"wait"
TOO_LARGE = struct.pack(">i", 1001)
LEFT_UNREAD = {"after a frame that cannot be read": FRAME + TOO_LARGE, "with too many requests": FRAME * 5}


class Waiting:
    """A server that answers when it is told to, if ever."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Future[Reply | None]] = []

    async def __aenter__(self) -> Server:
        config = ListenerConfig(host="127.0.0.1", port=0, limits=LIMITS, departed_check_ms=20)
        self.server = Server(asyncio.get_running_loop(), config, self._opened)
        await self.server.start()
        return self.server

    async def __aexit__(self, *_: object) -> None:
        await self.server.stop(0)

    def _opened(self, connection: ServerConnection) -> FrameHandler:
        return self._ask

    def _ask(self, frame: memoryview) -> "asyncio.Future[Reply | None]":
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def until(condition: Callable[[], bool], within_s: float = 20) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


async def connect(port: int, said: bytes, waiting: Waiting, wanted: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=20)
    connection.sendall(said)
    await until(lambda: len(waiting.asked) == wanted)
    return connection


@pytest.mark.parametrize("said", LEFT_UNREAD.values(), ids=LEFT_UNREAD.keys())
@pytest.mark.parametrize("is_reset", [False, True], ids=["closed", "reset"])
def test_a_peer_that_has_gone_is_not_waited_for_to_the_end_of_its_requests(said: bytes, is_reset: bool) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with waiting as server:
            wanted = 1 if said.endswith(TOO_LARGE) else LIMITS.max_requests_in_flight
            connection = await connect(server.port, said, waiting, wanted)
            if is_reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            await until(lambda: all(reply.cancelled() for reply in waiting.asked))

    run(scenario())


@pytest.mark.parametrize("said", LEFT_UNREAD.values(), ids=LEFT_UNREAD.keys())
def test_a_peer_that_is_still_there_gets_its_answers(said: bytes) -> None:
    async def scenario() -> None:
        waiting = Waiting()
        async with waiting as server:
            wanted = 1 if said.endswith(TOO_LARGE) else LIMITS.max_requests_in_flight
            connection = await connect(server.port, said, waiting, wanted)
            await asyncio.sleep(0.2)  # Several looks.
            for reply in waiting.asked:
                reply.set_result([b"answer"])
            connection.setblocking(False)
            received = await asyncio.get_running_loop().sock_recv(connection, 6)
            assert received == b"answer"
            connection.close()

    run(scenario())


def test_who_does_not_log_in_is_disconnected_and_who_has_stays() -> None:
    async def scenario() -> None:
        strangers: list[ServerConnection] = []

        def opened(connection: ServerConnection) -> FrameHandler:
            connection.is_stranger = True
            strangers.append(connection)
            return lambda frame: [frame]

        config = ListenerConfig(host="127.0.0.1", port=0, departed_check_ms=10, login_timeout_ms=100)
        server = Server(asyncio.get_running_loop(), config, opened)
        await server.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            await until(lambda: len(strangers) == 1)
            strangers[0].is_stranger = False
            other, other_writer = await asyncio.open_connection("127.0.0.1", server.port)
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                async with asyncio.timeout(20):
                    while True:  # It may say what it likes meanwhile.
                        other_writer.write(FRAME)
                        await other.readexactly(4)
            writer.write(FRAME)
            assert await asyncio.wait_for(reader.readexactly(4), 20) == FRAME[4:]
            writer.close()
        finally:
            await server.stop(0)

    run(scenario())
