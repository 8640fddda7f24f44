"""Nodes with a secret, over real connections: they find each other, and a stranger gets nothing at all."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.config import Address, PeerConfig
from quorate.transport.peers.frames import FrameKind, encode_frame, encode_message, encode_request
from quorate.transport.peers.hello import MAX_HELLO_BYTES, RejectReason, decode_rejection, encode_hello
from tests.integration.peer_nodes import ASK, CLUSTER, LOOPBACK, SAY, Node, new_hello, read_frame, running

# Not 1, 2, 3: an id must never pass for an index.
A, B = NodeId(7), NodeId(100)
OLD, NEW, OTHER = "o" * 32, "n" * 32, "x" * 32
FAST = PeerConfig(reconnect_backoff_min_ms=1, reconnect_backoff_max_ms=2)

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def new_node(node_id: NodeId, *secrets: str, config: PeerConfig = FAST) -> Node:
    return Node(node_id, credentials=knowing(*secrets), config=config)


def knowing(*secrets: str) -> PeerCredentials:
    return PeerCredentials(secrets=ClusterSecrets(secrets) if secrets else None)


async def say(to: Address, *frames: bytes) -> bytes:
    """All that comes back until the node ends the connection."""
    reader, writer = await asyncio.open_connection(to.host, to.port)
    try:
        writer.writelines(frames)
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


def authenticate(body: bytes) -> bytes:
    return b"".join(encode_frame(FrameKind.AUTHENTICATE, [body]))


def opening(nonce: bytes = b"\x05" * NONCE_BYTES) -> bytes:
    return authenticate(b"QPH\0\x01" + nonce)


HELLO = b"".join(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A))]))


def test_nodes_with_the_same_secret_talk() -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OLD)
        async with running(a, b):
            assert await a.peers.request(ASK, B, b"x" * 1_000_000, 20_000) == b"x" * 1_000_000
            assert b.peers.send(SAY, A, b"I lead")
            await a.until(lambda: a.messages == [(B, b"I lead")], "the message")

    run(scenario())


def test_a_node_with_another_secret_is_refused_and_both_logs_say_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OTHER)
        async with running(a, b, linked=False):
            a.peers.set_peers({B: b.address})
            await asyncio.sleep(0.5)
            assert not a.peers.is_connected(B)
            assert a.events == b.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all(RejectReason.NOT_PROVEN in line for line in lines)
    assert not [line for line in lines if OLD in line or OTHER in line]


@pytest.mark.parametrize(("one", "other"), [((OLD,), ()), ((), (OLD,))], ids=["dials", "listens"])
def test_a_node_without_a_secret_is_told_that_it_needs_it(
    one: tuple[str, ...], other: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        a, b = new_node(A, *one), new_node(B, *other)
        async with running(a, b, linked=False):
            a.peers.set_peers({B: b.address})
            await asyncio.sleep(0.5)
            assert a.events == b.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert all("every node needs a cluster_secret_file" in line for line in lines)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"".join(encode_message(SAY, [b"I lead"])), id="message"),
        pytest.param(b"".join(encode_request(1, ASK, [b"join"])), id="request"),
        pytest.param(authenticate(b""), id="empty opening"),
        pytest.param(authenticate(b"\xff" * 37), id="no opening"),
        pytest.param((MAX_HELLO_BYTES + 1).to_bytes(4, "big"), id="oversize"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="tls"),
    ],
)
def test_a_stranger_gets_nothing(said: bytes) -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OLD)
        async with running(a, b):
            assert await say(a.address, said) == b""
            assert a.messages == []
            assert a.asked_by == []
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"

    run(scenario())


def test_a_hello_without_a_proof_gets_the_advice_and_nothing_else() -> None:
    async def scenario() -> None:
        a = new_node(A, OLD)
        async with running(a):
            heard = await say(a.address, HELLO)
            assert CLUSTER.encode() not in heard
            assert heard[4] == FrameKind.REJECT
            assert decode_rejection(memoryview(heard)[5:]).reason == RejectReason.UNAUTHENTICATED

    run(scenario())


def test_a_stranger_who_opens_a_handshake_hears_a_nonce_once() -> None:
    async def scenario() -> None:
        a = new_node(A, OLD)
        async with running(a):
            heard = [await say(a.address, opening(), authenticate(bytes(9 + 32))) for _ in range(3)]
            assert {len(each) for each in heard} <= {0, 5 + 5 + NONCE_BYTES}
            assert a.asked_by == []
            nonces = [each[-NONCE_BYTES:] for each in heard if each]
            assert len(nonces) == len(set(nonces))  # A new one each time.

    run(scenario())


class Recorder:
    """Between two nodes: keeps what the one that dials says."""

    def __init__(self, to: Node) -> None:
        self._to = to
        self.said = b""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._carry, LOOPBACK, 0)
        try:
            yield Address(LOOPBACK, server.sockets[0].getsockname()[1])
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(self._to.address.host, self._to.address.port)

        async def back() -> None:
            while data := await their_reader.read(65536):
                writer.write(data)
            writer.close()

        backwards = asyncio.ensure_future(back())
        while data := await reader.read(65536):
            self.said += data
            their_writer.write(data)
        their_writer.close()
        await backwards


def test_a_recorded_conversation_is_of_no_use_later() -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OLD)
        recorder = Recorder(b)
        async with recorder.listening() as between, running(a, b, linked=False):
            a.peers.set_peers({B: between})
            await a.until_connected(B)
            assert a.peers.send(SAY, B, b"I lead")
            await b.until(lambda: b.messages == [(A, b"I lead")], "the message")
            assert b"I lead" in recorder.said

            heard = await say(b.address, recorder.said)
            assert len(heard) <= 5 + 5 + NONCE_BYTES
            assert b.messages == [(A, b"I lead")]
            assert a.peers.is_connected(B)

    run(scenario())


def test_a_nodes_challenges_reflected_to_it_and_to_its_peer_open_nothing() -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OLD)
        to_itself = Recorder(a)
        async with to_itself.listening() as mirror, running(a, b, linked=False):
            # It means to dial B, and whoever stands between leads it to itself.
            a.peers.set_peers({B: mirror})
            await asyncio.sleep(0.3)
            assert not a.peers.is_connected(B)
            assert CLUSTER.encode() not in to_itself.said
            assert a.events == []

    run(scenario())


def test_secrets_change_while_nodes_talk() -> None:
    async def scenario() -> None:
        a, b = new_node(A, OLD), new_node(B, OLD)
        async with running(a, b):
            a.peers.use_credentials(knowing(OLD, NEW))
            b.peers.use_credentials(knowing(NEW, OLD))
            assert await a.peers.request(ASK, B, b"not even a moment", 20_000) == b"not even a moment"
            assert [event[0] for event in a.events + b.events] == ["connected"] * 2

            # What rests on a secret that counts no more ends, and comes back with the other one.
            a.peers.use_credentials(knowing(NEW))
            await a.until(lambda: len(a.events) >= 3, "a new link")
            await a.until_connected(B)
            await b.until(lambda: ("lost", A) in b.events, "the end of the old link")
            await b.until_connected(A)
            b.peers.use_credentials(knowing(NEW))
            assert await b.peers.request(ASK, A, b"nor now", 20_000) == b"nor now"
            assert [event[0] for event in a.events] == ["connected", "lost", "connected"]

    run(scenario())


def test_a_flood_of_unproven_strangers_is_bounded_and_logged_briefly(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a = new_node(A, OLD, config=PeerConfig(max_unintroduced=5))
        b = new_node(B, OLD)
        async with running(a, b):
            strangers: list[Ends] = []
            for _ in range(50):
                ends = await asyncio.open_connection(LOOPBACK, a.peers.port)
                ends[1].write(opening())
                assert (await asyncio.wait_for(read_frame(ends[0]), 20))[0] is FrameKind.AUTHENTICATE
                strangers.append(ends)
            for _ in range(50):
                await say(a.address, opening(), authenticate(bytes(9 + 32)))
            for reader, writer in strangers:
                assert await asyncio.wait_for(_rest(reader), 20) == b""
                writer.close()
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"
            assert [event[0] for event in b.events] == ["connected"]

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert len(caplog.records) <= 2


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


def test_who_is_slow_with_its_proof_is_not_waited_for() -> None:
    async def scenario() -> None:
        a = new_node(A, OLD, config=PeerConfig(connect_timeout_ms=200))
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.write(opening()[:3])
            assert await asyncio.wait_for(_rest(reader), 20) == b""
            writer.close()

    run(scenario())


def test_a_false_node_that_announces_a_large_frame_before_its_proof_is_left() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_frame(reader)
            writer.write((1 << 20).to_bytes(4, "big") + bytes(1000))
            await _rest(reader)
            ended.set()
            writer.close()

        server = await asyncio.start_server(pretend, LOOPBACK, 0)
        a = new_node(A, OLD)
        async with running(a):
            a.peers.set_peers({B: Address(LOOPBACK, server.sockets[0].getsockname()[1])})
            await asyncio.wait_for(ended.wait(), 20)
            assert not a.peers.is_connected(B)
        server.close()

    run(scenario())
