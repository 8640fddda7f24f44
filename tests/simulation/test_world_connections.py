"""Connections of the simulated network keep TCP's promises, over both kinds of protocol, and give no others."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from tests.simulation.world.host import SimulatedHost
from tests.simulation.world.link import LinkSettings
from tests.simulation.world.world import World

PORT = 9000


class Peer(asyncio.Protocol):
    """Records what happens to it; echoes where asked to."""

    def __init__(self, *, echoes: bool = False) -> None:
        self._echoes = echoes
        self.received = bytearray()
        self.events: list[str] = []
        self.transport: asyncio.Transport
        self.lost_with: Exception | None = None
        self.keeps_half_open = False

    @property
    def is_lost(self) -> bool:
        return "lost" in self.events

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.events.append("made")

    def data_received(self, data: bytes) -> None:
        assert "made" in self.events
        assert not self.is_lost
        self.received += data
        if self._echoes:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.events.append("eof")
        return self.keeps_half_open

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_with = exc
        self.events.append("lost")


class BufferedPeer(asyncio.BufferedProtocol):
    """The same, reading into a small buffer of its own."""

    def __init__(self, *, echoes: bool = False) -> None:
        self._peer = Peer(echoes=echoes)
        self._buffer = bytearray(1000)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)

    def buffer_updated(self, nbytes: int) -> None:
        self._peer.data_received(bytes(self._buffer[:nbytes]))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._peer.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._peer.connection_lost(exc)


class Pair:
    """A server that keeps its connections, and a client host."""

    def __init__(self, world: World, *, echoes: bool = False) -> None:
        self.world = world
        self.server = world.add_host("server")
        self.client = world.add_host("client")
        self.accepted: list[Peer] = []
        self._echoes = echoes

    async def listen(self, port: int = PORT) -> asyncio.AbstractServer:
        return await self.server.run(self.server.loop.create_server(self._accept, "0.0.0.0", port))

    async def connect(self, host: SimulatedHost | None = None) -> Peer:
        host = host or self.client
        _, peer = await host.run(host.loop.create_connection(Peer, "server", PORT))
        return cast(Peer, peer)

    def _accept(self) -> Peer:
        self.accepted.append(Peer(echoes=self._echoes))
        return self.accepted[-1]


@pytest.mark.parametrize("server_kind", [Peer, BufferedPeer])
def test_bytes_come_back_whole_and_in_order_through_small_windows(
    server_kind: Callable[..., asyncio.BaseProtocol],
) -> None:
    content = bytes(range(256)) * 2000

    async def scenario() -> None:
        await server.run(server.loop.create_server(lambda: server_kind(echoes=True), "server", PORT))
        _, protocol = await client.run(client.loop.create_connection(Peer, "server", PORT))
        peer = cast(Peer, protocol)
        peer.transport.writelines([content[:7], memoryview(content)[7:]])
        await world.until(lambda: len(peer.received) >= len(content))
        assert peer.received == content

    settings = LinkSettings(window_bytes=5000, loss_probability=0.05, split_probability=0.5)
    for seed in range(5):
        with World(seed, link=settings) as world:
            server, client = world.add_host("server"), world.add_host("client")
            world.run(scenario())


def test_a_reader_that_stops_holds_its_writer_back() -> None:
    async def scenario() -> None:
        await pair.listen()
        peer = await pair.connect()
        await world.until(lambda: bool(pair.accepted))
        accepted = pair.accepted[0]
        accepted.transport.pause_reading()
        peer.transport.set_write_buffer_limits(high=3000, low=1000)
        peer.transport.write(bytes(8000))
        assert peer.events == ["made"], "within the window and the buffer"
        peer.transport.write(bytes(4000))
        assert peer.events == ["made", "pause"]
        assert peer.transport.get_write_buffer_size() == 4000
        await world.sleep(100)
        assert not accepted.received
        accepted.transport.resume_reading()
        await world.until(lambda: len(accepted.received) == 12_000)
        assert peer.events == ["made", "pause", "resume"]
        assert peer.transport.get_write_buffer_size() == 0

    with World(1, link=LinkSettings(window_bytes=8000)) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_slow_link_takes_its_time() -> None:
    async def scenario() -> None:
        await pair.listen()
        peer = await pair.connect()
        begun = world.now
        peer.transport.write(bytes(100_000))
        await world.until(lambda: bool(pair.accepted) and len(pair.accepted[0].received) == 100_000)
        assert 2.0 < world.now - begun < 2.5

    with World(1, link=LinkSettings(bytes_per_second=50_000)) as world:
        pair = Pair(world)
        world.run(scenario())


def test_closing_sends_what_was_written_before_the_end() -> None:
    async def scenario() -> None:
        await pair.listen()
        peer = await pair.connect()
        peer.transport.write(bytes(50_000))
        peer.transport.close()
        assert peer.transport.is_closing()
        await world.until(lambda: peer.is_lost)
        await world.until(lambda: bool(pair.accepted) and pair.accepted[0].is_lost)
        assert len(pair.accepted[0].received) == 50_000
        assert pair.accepted[0].events == ["made", "eof", "lost"]
        assert pair.accepted[0].lost_with is None

    with World(1, link=LinkSettings(window_bytes=1000)) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_half_closed_connection_still_carries_the_other_direction() -> None:
    async def scenario() -> None:
        await pair.listen()
        peer = await pair.connect()
        await world.until(lambda: bool(pair.accepted))
        accepted = pair.accepted[0]
        accepted.keeps_half_open = True
        peer.transport.write(b"question")
        peer.transport.write_eof()
        await world.until(lambda: "eof" in accepted.events)
        accepted.transport.write(b"answer")
        accepted.transport.close()
        await world.until(lambda: peer.is_lost)
        assert accepted.received == b"question"
        assert peer.received == b"answer"

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_closing_with_something_unread_resets_the_peer() -> None:
    async def scenario() -> None:
        await pair.listen()
        peer = await pair.connect()
        await world.until(lambda: bool(pair.accepted))
        pair.accepted[0].transport.pause_reading()
        peer.transport.write(b"never read")
        await world.sleep(1)
        pair.accepted[0].transport.abort()
        await world.until(lambda: peer.is_lost)
        assert isinstance(peer.lost_with, ConnectionResetError)

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_connect_that_is_given_up_ends_at_the_server_too() -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.15):
            await pair.client.loop.create_connection(Peer, "server", PORT)

    async def scenario() -> None:
        await pair.listen()
        with pytest.raises(TimeoutError):
            await pair.client.run(impatient())
        await world.until(lambda: bool(pair.accepted) and pair.accepted[0].is_lost)

    with World(1, link=LinkSettings(delay_ms=100, jitter_ms=0)) as world:
        pair = Pair(world)
        world.run(scenario())


def test_a_listener_that_closed_refuses_and_its_port_is_free_again() -> None:
    async def scenario() -> None:
        listener = await pair.listen()
        with pytest.raises(OSError, match="Address already in use"):
            await pair.listen()
        listener.close()
        with pytest.raises(ConnectionRefusedError):
            await pair.connect()
        await pair.listen()
        await pair.connect()

    with World(1) as world:
        pair = Pair(world)
        world.run(scenario())


def test_order_is_kept_within_a_connection_and_not_between_two() -> None:
    orders: set[tuple[bytes, ...]] = set()

    async def scenario() -> None:
        await pair.listen()
        first, second = await pair.connect(), await pair.connect()
        await world.until(lambda: len(pair.accepted) == 2)
        arrivals: list[bytes] = []
        for accepted in pair.accepted:
            accepted.data_received = arrivals.append  # type: ignore[method-assign, assignment]
        first.transport.write(b"1")
        second.transport.write(b"2")
        await world.until(lambda: len(arrivals) == 2)
        orders.add(tuple(arrivals))

    for seed in range(20):
        with World(seed) as world:
            pair = Pair(world)
            world.run(scenario())
    assert orders == {(b"1", b"2"), (b"2", b"1")}


def test_streams_of_asyncio_work_and_know_their_addresses() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readline())
        writer.write(repr(writer.get_extra_info("peername")[0]).encode())
        await writer.drain()
        writer.close()

    async def ask() -> bytes:
        reader, writer = await asyncio.open_connection("10.0.0.1", PORT)
        assert writer.get_extra_info("peername") == ("10.0.0.1", PORT)
        assert writer.get_extra_info("socket") is None
        writer.write(b"line\n")
        return await reader.read()

    async def scenario() -> None:
        server, client = world.add_host("server"), world.add_host("client")
        await server.run(asyncio.start_server(answer, "10.0.0.1", PORT))
        assert await client.run(ask()) == b"line\n'10.0.0.2'"

    with World(1) as world:
        world.run(scenario())
