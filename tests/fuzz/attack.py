"""Carries bursts to a port: many connections at once, frames sent without waiting for answers."""

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from tests.fuzz.bursts import Burst, Ending

Address = tuple[str, int]

_CONNECTIONS = 24
#: After that long without a byte nothing more is waited for: some requests are answered late, or never.
_SILENCE_S = 0.1
_CONNECTED_WITHIN_S = 20
_RECEIVED_BYTES = 1 << 16
_LINGER_NOT = struct.pack("ii", 1, 0)
_LENGTH = struct.Struct(">i")


class Tally(msgspec.Struct):
    """What came of the bursts."""

    frames: int = 0
    answers: int = 0
    connections: int = 0
    #: Ended by the node before all was answered.
    ended: int = 0

    def add(self, other: "Tally") -> None:
        self.frames += other.frames
        self.answers += other.answers
        self.connections += other.connections
        self.ended += other.ended


class _Answers:
    """Counts the frames that come back."""

    def __init__(self) -> None:
        self.count = 0
        self._left = bytearray()
        self._came = asyncio.Event()

    async def first(self) -> None:
        """When an answer has come, or none will."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S * 10):
                await self._came.wait()

    def no_more(self) -> None:
        self._came.set()

    def received(self, data: bytes) -> None:
        left = self._left
        left += data
        at = 0
        while len(left) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(left, at)
            if len(left) - at - _LENGTH.size < length:
                break
            at += _LENGTH.size + length
            self.count += 1
            self._came.set()
        del left[:at]


async def attack(target: Callable[[Burst], Address], bursts: Iterable[Burst]) -> Tally:
    """Send all of them. An end of a connection is none of this function's concern; that nobody listens is."""
    waiting = deque(bursts)
    tally = Tally()

    async def work() -> None:
        while waiting:
            burst = waiting.popleft()
            tally.add(await _send(target(burst), burst))

    await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
    return tally


async def _send(address: Address, burst: Burst) -> Tally:
    loop = asyncio.get_running_loop()
    tally = Tally(frames=len(burst.frames), connections=1)
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        async with asyncio.timeout(_CONNECTED_WITHIN_S):
            await loop.sock_connect(connection, address)
        answers = _Answers()
        reading = loop.create_task(_read(connection, answers, len(burst.frames)))
        try:
            await _write(connection, burst, answers)
            if burst.ending in (Ending.ANSWERED, Ending.HALF_CLOSED):
                tally.ended = int(await reading)
        except OSError:
            tally.ended = 1
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await reading
        tally.answers = answers.count
    return tally


async def _write(connection: socket.socket, burst: Burst, answers: _Answers) -> None:
    loop = asyncio.get_running_loop()
    for place, piece in enumerate(burst.pieces()):
        # A node that takes nothing more is what a stranger would not wait for either.
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S * 10):
                await loop.sock_sendall(connection, piece)
        if burst.waits_after_first and place == 0:
            await answers.first()
        elif burst.piece_bytes:
            await asyncio.sleep(0)
    if burst.ending is Ending.HALF_CLOSED:
        connection.shutdown(socket.SHUT_WR)


async def _read(connection: socket.socket, answers: _Answers, wanted: int) -> bool:
    """Whether the other end has closed the connection."""
    loop = asyncio.get_running_loop()
    try:
        while answers.count < wanted:
            async with asyncio.timeout(_SILENCE_S):
                data = await loop.sock_recv(connection, _RECEIVED_BYTES)
            if not data:
                return True
            answers.received(data)
    except TimeoutError:
        return False
    finally:
        answers.no_more()
    return False
