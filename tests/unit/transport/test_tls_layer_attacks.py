"""What a stranger can make of TLS who has done no more than its handshake."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from quorate.transport.acceptor import HandshakeTurns
from tests.unit.transport.test_tls_layer import MEMORY, World, run
from tests.unit.transport.tls13_records import Tls13Records

_LONG = bytes(range(256)) * 2000


class _Unread:
    """A client that takes nothing: after so many bytes the transport has the layer stop."""

    def __init__(self, world: World, high_water: int) -> None:
        self._world = world
        self._high_water = high_water
        self._pass_on = world.plain.write
        self.sent_bytes = 0
        world.plain.write = self._write  # type: ignore[method-assign]

    def _write(self, data: bytes) -> None:
        self._pass_on(data)
        before, self.sent_bytes = self.sent_bytes, self.sent_bytes + len(data)
        if before <= self._high_water < self.sent_bytes:
            self._world.layer.pause_writing()


async def open_world(key_log: Path, **settings: Any) -> tuple[World, Tls13Records]:
    world = World(**settings)
    world.client.context.keylog_filename = str(key_log)
    world.exchange()
    assert world.inside.events == ["made"]
    return world, Tls13Records(key_log)


def test_changes_of_keys_are_not_answered_to_who_takes_no_answer(tmp_path: Path) -> None:
    async def scenario() -> None:
        world, records = await open_world(tmp_path / "log")
        unread = _Unread(world, high_water=50_000)
        flood = b"".join(records.key_update() for _ in range(20_000))
        at = 0
        while world.plain.is_reading and at < len(flood):
            piece = flood[at : at + len(MEMORY)]
            at += len(piece)
            world.receive(piece, len(MEMORY))
        assert at < len(flood) / 2
        assert unread.sent_bytes < 150_000
        # Whoever takes them is heard again, and nothing was lost.
        flood += records.record(b"still here")
        while b"still here" not in world.inside.received:
            world.layer.resume_writing()
            await asyncio.sleep(0)
            if world.plain.is_reading and at < len(flood):
                piece = flood[at : at + len(MEMORY)]
                at += len(piece)
                world.receive(piece, len(MEMORY))

    run(scenario())


def test_no_turn_of_the_loop_decrypts_for_longer_than_it_may(tmp_path: Path) -> None:
    async def scenario() -> None:
        clock = iter(range(1_000_000))
        world, records = await open_world(tmp_path / "log", room=1_000_000)
        world.layer._now = lambda: next(clock) * 0.006  # Each piece takes longer than half a turn.
        world.inside.received.clear()
        piece = b"".join(records.record(_LONG[at : at + 16_000]) for at in range(0, 64_000, 16_000))[: len(MEMORY)]
        world.receive(piece, len(MEMORY))
        in_first_turn = len(world.inside.received)
        assert 0 < in_first_turn < 50_000
        assert not world.plain.is_reading
        while not world.plain.is_reading:
            await asyncio.sleep(0)
        assert len(world.inside.received) > in_first_turn
        assert world.inside.received == _LONG[: len(world.inside.received)]

    run(scenario())


class _Watched:
    """OpenSSL's memory for bytes that come or go: how much it was ever given at once, which is what it keeps."""

    def __init__(self, memory: ssl.MemoryBIO) -> None:
        self._memory = memory
        self.most_bytes = 0

    @property
    def pending(self) -> int:
        self.most_bytes = max(self.most_bytes, self._memory.pending)
        return self._memory.pending

    def write(self, data: bytes) -> int:
        written = self._memory.write(data)
        self.most_bytes = max(self.most_bytes, self._memory.pending)
        return written

    def read(self) -> bytes:
        self.most_bytes = max(self.most_bytes, self._memory.pending)
        return self._memory.read()


def test_a_connection_keeps_little_memory_of_what_went_through_it() -> None:
    async def scenario() -> None:
        world = World(room=1_000_000)
        world.exchange()
        layer: Any = world.layer
        layer._incoming, layer._outgoing = _Watched(layer._incoming), _Watched(layer._outgoing)
        world.client.write(_LONG)
        world.exchange(len(MEMORY))
        while len(world.inside.received) < len(_LONG):
            await asyncio.sleep(0)
        world.layer.write(_LONG)
        world.exchange()
        assert world.read() == world.inside.received == _LONG
        for watched in (layer._incoming, layer._outgoing):
            assert 16_000 < watched.most_bytes < 40_000

    run(scenario())


def test_a_crowd_that_shakes_hands_leaves_others_their_turn() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        now_s = 0.0
        told: list[str] = []

        def shake(number: int) -> None:
            nonlocal now_s
            now_s += 0.0008
            told.append(f"hands {number}")

        turns = HandshakeTurns(loop, lambda: now_s)
        for number in range(9):
            turns.ask(lambda number=number: shake(number))  # type: ignore[misc]
        while len([each for each in told if each != "others"]) < 9:
            await asyncio.sleep(0)
            told.append("others")
        spans = " ".join(told).split("others")
        assert [span.split()[1::2] for span in spans if span.strip()] == [list("012"), list("345"), list("678")]

    run(scenario())


def test_one_that_fails_keeps_nobody_from_shaking_hands() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda *_: None)
        turns = HandshakeTurns(loop)
        done = asyncio.Event()

        def fail() -> None:
            raise ValueError("a bug")

        turns.ask(fail)
        turns.ask(done.set)
        await asyncio.wait_for(done.wait(), 30)

    run(scenario())


@pytest.mark.parametrize("leaves", ["connection_lost", "abort", "close"])
def test_who_leaves_while_it_waits_for_its_turn_is_forgotten(leaves: str) -> None:
    async def scenario() -> None:
        world = World()
        asked: list[Any] = []
        world.layer._ask_for_turn = asked.append
        with pytest.raises(ssl.SSLWantReadError):
            world.client.do_handshake()
        world.receive(world.from_client.read())
        assert not world.plain.is_reading
        if leaves == "connection_lost":
            world.layer.connection_lost(None)
        else:
            getattr(world.layer, leaves)()
        world.plain.sent.clear()
        asked[0]()
        assert not world.plain.sent
        assert world.inside.events == []

    run(scenario())
