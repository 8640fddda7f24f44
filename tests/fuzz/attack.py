"""Carries bursts to a port: many connections at once, frames sent without waiting for answers."""

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress

import msgspec

from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets, DialingPeer, PeerRefused, ProvenPeer
from quorate.transport.peers.frames import FrameKind, encode_frame
from tests.fuzz.bursts import Burst, Claim, Ending
from tests.fuzz.pulse import Pulse

Address = tuple[str, int]

_CONNECTIONS = 24
#: A connection is silent when for that long no byte went either way, and the node has answered others so many times
#: meanwhile. Then nothing more is waited for: some requests are answered late, or never.
_SILENCE_S = 0.3
_SILENCE_BEATS = 10
#: What a stranger waits for a node that takes nothing more.
_TAKEN_WITHIN_S = 1.0
_CONNECTED_WITHIN_S = 20
_RECEIVED_BYTES = 1 << 16
_LINGER_NOT = struct.pack("ii", 1, 0)
_LENGTH = struct.Struct(">i")


class Target(msgspec.Struct, frozen=True):
    """Where a burst goes, and the client port of the same node, which tells whether the node has got round to it."""

    address: Address
    client_port: Address
    #: For those who prove to know it.
    secrets: ClusterSecrets | None = None


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


class _Talk:
    """What was said on a connection: counts the frames that come back, and notices when it has gone silent."""

    def __init__(self, pulse: Pulse) -> None:
        self.answers = 0
        self._pulse = pulse
        self._left = bytearray()
        self._answered = asyncio.Event()
        self.stirred()

    def stirred(self) -> None:
        """Bytes went one way or the other."""
        self._stirred_at = asyncio.get_running_loop().time()
        self._stirred_beats = self._pulse.beats

    @property
    def is_silent(self) -> bool:
        since_s = asyncio.get_running_loop().time() - self._stirred_at
        beats = self._pulse.beats - self._stirred_beats
        return since_s >= _SILENCE_S and (beats >= _SILENCE_BEATS or self._pulse.has_stopped)

    async def first_answer(self) -> None:
        """When it has come, or none will."""
        await self._answered.wait()

    def no_more(self) -> None:
        self._answered.set()

    def received(self, data: bytes) -> None:
        self.stirred()
        left = self._left
        left += data
        at = 0
        while len(left) - at >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(left, at)
            if len(left) - at - _LENGTH.size < length:
                break
            at += _LENGTH.size + length
            self.answers += 1
            self._answered.set()
        del left[:at]


async def attack(target: Callable[[Burst], Target], bursts: Iterable[Burst]) -> Tally:
    """Send all of them. An end of a connection is none of this function's concern; that nobody listens is."""
    waiting = deque(bursts)
    tally = Tally()
    pulses: dict[Address, Pulse] = {}

    async def work() -> None:
        while waiting:
            burst = waiting.popleft()
            to = target(burst)
            pulse = pulses.get(to.client_port)
            if pulse is None:
                pulse = pulses[to.client_port] = Pulse(to.client_port)
            tally.add(await _send(to, burst, pulse))

    try:
        await asyncio.gather(*(work() for _ in range(_CONNECTIONS)))
    finally:
        for pulse in pulses.values():
            await pulse.end()
    return tally


async def _send(to: Target, burst: Burst, pulse: Pulse) -> Tally:
    loop = asyncio.get_running_loop()
    tally = Tally(frames=len(burst.frames), connections=1)
    with socket.socket() as connection:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        async with asyncio.timeout(_CONNECTED_WITHIN_S):
            await loop.sock_connect(connection, to.address)
        if burst.proves is not None and to.secrets is not None:
            try:
                async with asyncio.timeout(_CONNECTED_WITHIN_S):
                    await _prove(connection, to.secrets, burst.proves)
            except (OSError, EOFError, PeerRefused):
                tally.ended = 1
                return tally
        talk = _Talk(pulse)
        reading = loop.create_task(_read(connection, talk, len(burst.frames)))
        try:
            await _write(connection, burst, talk)
            if burst.ending in (Ending.ANSWERED, Ending.HALF_CLOSED):
                tally.ended = int(await reading)
        except OSError:
            tally.ended = 1
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await reading
        tally.answers = talk.answers
    return tally


async def _prove(connection: socket.socket, secrets: ClusterSecrets, claim: Claim) -> None:
    loop = asyncio.get_running_loop()
    dialing = DialingPeer(secrets, NodeId(claim.own), NodeId(claim.meant), os.urandom(NONCE_BYTES))
    step: bytes | ProvenPeer = dialing.opening()
    while isinstance(step, bytes):
        await loop.sock_sendall(connection, b"".join(encode_frame(FrameKind.AUTHENTICATE, [step])))
        (length,) = _LENGTH.unpack(await _receive_exactly(connection, _LENGTH.size))
        frame = await _receive_exactly(connection, min(length, _RECEIVED_BYTES))
        step = dialing.receive(frame[1:])


async def _receive_exactly(connection: socket.socket, size_bytes: int) -> bytes:
    received = b""
    while len(received) < size_bytes:
        piece = await asyncio.get_running_loop().sock_recv(connection, size_bytes - len(received))
        if not piece:
            raise EOFError
        received += piece
    return received


async def _write(connection: socket.socket, burst: Burst, talk: _Talk) -> None:
    loop = asyncio.get_running_loop()
    for place, piece in enumerate(burst.pieces()):
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_WITHIN_S):
                await loop.sock_sendall(connection, piece)
        talk.stirred()
        if burst.waits_after_first and place == 0:
            await talk.first_answer()
        elif burst.piece_bytes:
            await asyncio.sleep(0)
    if burst.ending is Ending.HALF_CLOSED:
        connection.shutdown(socket.SHUT_WR)


async def _read(connection: socket.socket, talk: _Talk, wanted: int) -> bool:
    """Whether the other end has closed the connection."""
    try:
        while talk.answers < wanted:
            data = await _receive(connection, talk)
            if data is None:
                return False
            if not data:
                return True
            talk.received(data)
    finally:
        talk.no_more()
    return False


async def _receive(connection: socket.socket, talk: _Talk) -> bytes | None:
    """None when the connection has gone silent."""
    loop = asyncio.get_running_loop()
    receiving = loop.create_task(loop.sock_recv(connection, _RECEIVED_BYTES))
    try:
        while not receiving.done():
            await asyncio.wait([receiving], timeout=_SILENCE_S / 6)
            if not receiving.done() and talk.is_silent:
                return None
        return receiving.result()
    finally:
        receiving.cancel()
