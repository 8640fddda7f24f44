"""The fuzz of the door finds a door that is open."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from struct import pack, unpack

import pytest

from quorate.security.peer_handshake import ClusterSecrets
from quorate.transport.peers.frames import FrameKind
from tests.fuzz.door_line import LineEnded
from tests.fuzz.door_visits import BrokenIn, Door, Visitor
from tests.fuzz.pulse import Pulse

_ENOUGH = 60


async def _visits(serve: Callable[[bytes], bytes], folder: Path) -> None:
    """As many as meet each way of saying something, to a node that answers each frame with that."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.read(4):
                said = serve(await reader.readexactly(*unpack(">I", head)))
                writer.write(pack(">I", len(said)) + said)
        except (asyncio.IncompleteReadError, OSError):
            pass
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        address: tuple[str, int] = server.sockets[0].getsockname()
        door = Door(
            addresses=dict.fromkeys(("PLAINTEXT", "SASL_PLAINTEXT"), address),
            peer_address=address,
            authority_file="",
            folder=folder,
            secrets=ClusterSecrets(["s" * 40]),
            node_id=7,
            access_token="a.b.c",
        )
        pulse = Pulse(address)
        try:
            await asyncio.gather(*(_one(Visitor(door, 1, number, pulse)) for number in range(_ENOUGH)))
        finally:
            await pulse.end()


async def _one(visitor: Visitor) -> None:
    visits: tuple[Callable[[], Awaitable[None]], ...] = (
        lambda: visitor._on_line("SASL_PLAINTEXT", visitor._say_as_stranger),
        visitor._as_node,
    )
    for visit in visits:
        with contextlib.suppress(LineEnded):
            await asyncio.wait_for(visit(), 30)


def test_requests_that_are_served_to_anybody_are_noticed(tmp_path: Path) -> None:
    def serve(frame: bytes) -> bytes:
        return frame[4:8] + b"\0" * 100

    with pytest.raises(BrokenIn, match="was served at SASL_PLAINTEXT to who is not let in"):
        asyncio.run(_visits(serve, tmp_path))


def test_a_node_that_proves_itself_to_anybody_is_noticed(tmp_path: Path) -> None:
    def serve(frame: bytes) -> bytes:
        if frame[:1] != bytes([FrameKind.AUTHENTICATE]):
            return frame[4:8] + pack(">h", 34)
        is_opening = frame[1:5] == b"QPH\0"
        return frame[:1] + (b"QPH\0\1" + b"n" * 32 if is_opening else b"p" * 36)

    with pytest.raises(BrokenIn, match="the peer port: it said"):
        asyncio.run(_visits(serve, tmp_path))


def test_refusals_are_no_findings(tmp_path: Path) -> None:
    def serve(frame: bytes) -> bytes:
        if frame[:1] == bytes([FrameKind.AUTHENTICATE]):
            return bytes([FrameKind.REJECT]) + b"no"
        return frame[4:8] + pack(">h", 34)

    asyncio.run(_visits(serve, tmp_path))
