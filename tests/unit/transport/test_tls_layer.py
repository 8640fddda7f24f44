"""TLS in the middle of a connection, against OpenSSL as the client, without a socket."""

import asyncio
import ssl
from collections.abc import Coroutine
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from quorate.security.certificates import Subject, issue, make_authority
from quorate.security.tls import TlsMaterial, server_context
from quorate.security.tls_settings import ClientAuth, PemSource, TlsSettings
from quorate.transport.tls_layer import TlsLayer

NOW = datetime.now(UTC)
AUTHORITY = make_authority("authority", NOW)
SERVER = issue(AUTHORITY, Subject(name="node", hosts=("127.0.0.1",)), NOW)
FILE = PemSource(setting="ssl.keystore.location", path="unread")
MEMORY = memoryview(bytearray(64 * 1024))


def context(client_auth: ClientAuth = ClientAuth.NONE) -> ssl.SSLContext:
    material = TlsMaterial(chain=SERVER.key_and_chain, key=None, trust=AUTHORITY.certificate)
    return server_context(TlsSettings(chain=FILE, trust=FILE, client_auth=client_auth), material)


class Inside(asyncio.BufferedProtocol):
    """Keeps what it is given; ``room`` is how much it takes at once."""

    def __init__(self, room: int = 1000) -> None:
        self.transport: Any = None
        self.received = bytearray()
        self.events: list[str] = []
        self._room = bytearray(room)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.events.append("made")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._room)

    def buffer_updated(self, nbytes: int) -> None:
        self.received += self._room[:nbytes]
        if b"pause" in self.received:
            self.transport.pause_reading()

    def eof_received(self) -> bool:
        self.events.append("eof")
        return False

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


class PlainTransport:
    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_reading = True
        self.is_closed = False
        self.is_aborted = False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = self.is_aborted = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def get_write_buffer_size(self) -> int:
        return 17

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 5) if name == "peername" else default


class World:
    def __init__(self, served: ssl.SSLContext | None = None, timeout_s: float = 30.0, room: int = 1000) -> None:
        self.inside = Inside(room)
        self.plain = PlainTransport()
        self.ended: list[str | None] = []
        self.has_ended = asyncio.Event()
        self.layer = TlsLayer(
            self.inside,
            served or context(),
            MEMORY,
            timeout_s=timeout_s,
            on_handshake_ended=self._note_end,
            now=lambda: 0.0,
        )
        self.layer.connection_made(self.plain)  # type: ignore[arg-type]
        trusting = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
        self.to_client, self.from_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trusting.wrap_bio(self.to_client, self.from_client, server_hostname="127.0.0.1")

    def _note_end(self, reason: str | None) -> None:
        self.ended.append(reason)
        self.has_ended.set()

    def receive(self, data: bytes, piece: int = 64 * 1024) -> None:
        for start in range(0, len(data), piece):
            part = data[start : start + piece]
            self.layer.get_buffer(-1)[: len(part)] = part
            self.layer.buffer_updated(len(part))

    def exchange(self, piece: int = 64 * 1024) -> None:
        """Everything that either side has to say."""
        while True:
            sent = bytes(self.plain.sent)
            self.plain.sent.clear()
            if sent:
                self.to_client.write(sent)
            with suppress(ssl.SSLWantReadError):
                self.client.do_handshake()
            said = self.from_client.read()
            if not said and not self.plain.sent:
                return
            self.receive(said, piece)

    def read(self) -> bytes:
        read = bytearray()
        while True:
            try:
                read += self.client.read(100_000)
            except ssl.SSLWantReadError:
                return bytes(read)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


@pytest.mark.parametrize("piece", [1, 100, 64 * 1024])
def test_bytes_come_through_both_ways_however_they_are_cut(piece: int) -> None:
    async def scenario() -> None:
        world = World()
        world.exchange(piece)
        assert world.ended == [None]
        assert world.inside.events == ["made"]
        long = bytes(range(256)) * 500
        world.client.write(long)
        world.exchange(piece)
        assert world.inside.received == long
        world.layer.writelines([b"an", memoryview(b"swer"), long * 10])
        world.exchange(piece)
        assert world.read() == b"answer" + long * 10

    run(scenario())


def test_the_transport_inside_knows_of_tls_and_of_the_socket() -> None:
    async def scenario() -> None:
        world = World()
        world.exchange()
        transport = world.inside.transport
        assert transport.get_extra_info("peername") == ("10.0.0.1", 5)
        assert transport.get_extra_info("sslcontext") is not None
        assert transport.get_extra_info("ssl_object").version() == "TLSv1.3"
        assert transport.get_write_buffer_size() == 17

    run(scenario())


def test_what_came_before_a_pause_is_delivered_after_it() -> None:
    async def scenario() -> None:
        world = World(room=5)
        world.exchange()
        world.client.write(b"pause, and what is behind it")
        world.exchange()
        assert world.inside.received == b"pause"
        assert not world.plain.is_reading
        world.inside.received.clear()
        world.layer.resume_reading()
        assert world.inside.received == b""  # Not while it is being resumed.
        await asyncio.sleep(0)
        assert world.inside.received == b", and what is behind it"
        assert world.plain.is_reading

    run(scenario())


def test_an_end_is_told_to_the_client() -> None:
    async def scenario() -> None:
        world = World()
        world.exchange()
        world.layer.write(b"last words")
        world.layer.close()
        assert world.plain.is_closed
        assert not world.plain.is_aborted
        world.to_client.write(bytes(world.plain.sent))
        assert world.client.read(100) == b"last words"
        assert world.client.read(100) == b""

    run(scenario())


def test_an_end_that_the_client_tells_is_an_end_of_what_comes() -> None:
    async def scenario() -> None:
        world = World()
        world.exchange()
        world.client.write(b"bye")
        with pytest.raises(ssl.SSLWantReadError):
            world.client.unwrap()
        world.receive(world.from_client.read())
        assert world.inside.received == b"bye"
        assert world.inside.events == ["made", "eof"]
        assert world.plain.is_closed

    run(scenario())


def test_a_client_is_told_why_its_handshake_failed() -> None:
    async def scenario() -> None:
        world = World(context(ClientAuth.REQUIRED))
        world.exchange()
        assert world.ended == ["it shows no certificate"]
        assert world.plain.is_closed
        assert world.inside.events == []
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            world.client.read(1)

    run(scenario())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\0\0\0\x10\0\x12\0\3\0\0\0\1" + bytes(8), "it does not speak TLS"),
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP"),
    ],
)
def test_who_does_not_speak_tls_is_known_by_the_first_bytes(said: bytes, reason: str) -> None:
    async def scenario() -> None:
        world = World()
        world.receive(said)
        (ended,) = world.ended
        assert ended is not None
        assert reason in ended
        assert world.plain.is_closed
        world.receive(said)  # What was on its way.
        world.layer.connection_lost(None)
        assert len(world.ended) == 1

    run(scenario())


def test_a_handshake_that_does_not_get_on_is_ended() -> None:
    async def scenario() -> None:
        world = World(timeout_s=0.001)
        world.receive(b"\x16\x03\x01\x02\x00\x01")
        await world.has_ended.wait()
        assert world.ended == ["it did not finish the handshake in time"]
        assert world.plain.is_aborted

    run(scenario())


def test_a_client_that_leaves_in_the_middle_is_no_connection() -> None:
    async def scenario() -> None:
        world = World()
        world.receive(b"\x16\x03\x01\x02\x00\x01")
        world.layer.eof_received()
        world.layer.connection_lost(None)
        assert world.ended == ["it closed the connection before the handshake was done"]
        assert world.inside.events == []

    run(scenario())


def test_damaged_bytes_end_the_connection() -> None:
    async def scenario() -> None:
        world = World()
        world.exchange()
        world.receive(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert world.plain.is_aborted
        world.layer.connection_lost(None)
        assert world.inside.events == ["made", "lost"]
        world.layer.write(b"nobody hears this")

    run(scenario())


def test_back_pressure_of_the_socket_reaches_the_protocol_inside() -> None:
    async def scenario() -> None:
        world = World()
        world.layer.pause_writing()
        world.layer.resume_writing()  # Of a handshake; nobody inside has written yet.
        world.exchange()
        world.layer.pause_writing()
        world.layer.resume_writing()
        assert world.inside.events == ["made", "pause", "resume"]

    run(scenario())


def test_who_listens_reads_no_more_while_it_cannot_write() -> None:
    async def scenario() -> None:
        world = World()
        world.exchange()
        world.layer.pause_writing()
        assert not world.plain.is_reading
        world.client.write(b"more")
        world.receive(world.from_client.read())
        assert world.inside.received == b""
        world.layer.resume_writing()
        await asyncio.sleep(0)
        assert world.inside.received == b"more"
        assert world.plain.is_reading

    run(scenario())


def test_who_dials_reads_on_while_it_cannot_write_so_that_not_both_ends_wait() -> None:
    async def scenario() -> None:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname = False
        trusting.load_verify_locations(cadata=AUTHORITY.certificate.decode())
        inside, plain = Inside(), PlainTransport()
        dialler = TlsLayer(inside, trusting, MEMORY, timeout_s=30.0, on_handshake_ended=lambda _: None, is_client=True)
        to_server, from_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        server = context().wrap_bio(to_server, from_server, server_side=True)

        def receive() -> None:
            said = from_server.read()
            dialler.get_buffer(-1)[: len(said)] = said
            dialler.buffer_updated(len(said))

        dialler.connection_made(plain)  # type: ignore[arg-type]
        to_server.write(plain.sent)
        with pytest.raises(ssl.SSLWantReadError):
            server.do_handshake()
        plain.sent.clear()
        receive()
        to_server.write(plain.sent)
        server.do_handshake()
        dialler.pause_writing()
        server.write(b"an answer that the listener has to get rid of")
        receive()
        assert inside.received == b"an answer that the listener has to get rid of"
        assert plain.is_reading
        assert inside.events == ["made", "pause"]

    run(scenario())


def test_a_connection_that_is_given_up_before_it_is_there_ends_when_it_comes() -> None:
    async def scenario() -> None:
        ends: list[str | None] = []
        layer = TlsLayer(Inside(), context(), MEMORY, timeout_s=30.0, on_handshake_ended=ends.append)
        layer.abort()
        plain = PlainTransport()
        layer.connection_made(plain)  # type: ignore[arg-type]
        assert plain.is_aborted
        layer.connection_lost(None)
        assert ends == []  # Who gave it up knows.

    run(scenario())
