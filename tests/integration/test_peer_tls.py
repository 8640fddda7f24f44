"""Nodes with certificates, over real connections: they talk unseen, and who has no certificate gets nothing."""

import asyncio
import gc
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quorate.kernel.ids import NodeId
from quorate.security.peer_handshake import ClusterSecrets
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.config import Address, PeerConfig
from quorate.transport.peers.frames import FrameKind, encode_frame, encode_message
from quorate.transport.peers.hello import RejectReason, decode_rejection, encode_hello
from quorate.transport.peers.secured import PeerTlsLayer
from tests.integration.peer_nodes import ASK, CLUSTER, LOOPBACK, SAY, Node, new_hello, running
from tests.peers.node_certificates import NodeAuthority, dialling_context, listening_context

# Not 1, 2, 3: an id must never pass for an index.
A, B, C = NodeId(7), NodeId(100), NodeId(4001)
SECRET = "s" * 32
FAST = PeerConfig(reconnect_backoff_min_ms=1, reconnect_backoff_max_ms=2)
# Of one name: only the keys differ.
OURS, OTHERS = NodeAuthority(), NodeAuthority()
HELLO = b"".join(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A))]))
MESSAGE = b"".join(encode_message(SAY, [b"I lead"]))


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario())


def new_node(node_id: NodeId, credentials: PeerCredentials | None = None, config: PeerConfig = FAST) -> Node:
    return Node(node_id, credentials=credentials or OURS.credentials(node_id), config=config)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def say(to: Address, context: ssl.SSLContext | None, *frames: bytes) -> bytes:
    """All that comes back until the node ends the connection."""
    try:
        reader, writer = await asyncio.open_connection(to.host, to.port, ssl=context)
    except (ssl.SSLError, ConnectionError):
        return b""
    try:
        writer.writelines(frames)
        return await rest_of(reader)
    finally:
        writer.close()


async def rest_of(reader: asyncio.StreamReader) -> bytes:
    heard = b""
    try:
        while data := await asyncio.wait_for(reader.read(65536), 20):
            heard += data
    except (ssl.SSLError, ConnectionError):
        pass
    return heard


class Between:
    """Stands between two nodes, and keeps all that they say. It may damage a byte of it."""

    def __init__(self, to: Node) -> None:
        self._to = to
        self.said = b""
        self.damages_at: int | None = None

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Address]:
        server = await asyncio.start_server(self._carry, LOOPBACK, 0)
        try:
            yield Address(LOOPBACK, server.sockets[0].getsockname()[1])
        finally:
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        their_reader, their_writer = await asyncio.open_connection(self._to.address.host, self._to.address.port)
        await asyncio.gather(self._pass_on(reader, their_writer), self._pass_on(their_reader, writer))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := bytearray(await reader.read(65536)):
                if self.damages_at is not None and len(self.said) + len(data) > self.damages_at:
                    data[-1] ^= 1
                    self.damages_at = None
                self.said += data
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()


def test_nodes_with_certificates_talk_both_ways() -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        async with running(a, b):
            large = bytes(range(256)) * 10_000
            assert await a.peers.request(ASK, B, large, 20_000) == large
            assert b.peers.send(SAY, A, b"I lead")
            await a.until(lambda: a.messages == [(B, b"I lead")], "the message")
            many = [a.peers.request(ASK, B, bytes([number]) * 50_000, 20_000) for number in range(100)]
            assert [answer[0] for answer in await asyncio.gather(*many)] == list(range(100))

    run(scenario)


def test_who_dials_takes_answers_also_while_the_other_end_takes_nothing() -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        async with running(a, b):
            # The other end reads no more while its answers are not taken.
            many = [a.peers.request(ASK, B, bytes([number]) * 3_000_000, 20_000) for number in range(5)]
            for _ in range(5):
                assert [answer[0] for answer in await asyncio.gather(*many)] == list(range(5))
                many = [a.peers.request(ASK, B, bytes([number]) * 3_000_000, 20_000) for number in range(5)]
            await asyncio.gather(*many)
            assert [event[0] for event in a.events + b.events] == ["connected"] * 2

    run(scenario)


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "TLS"])
def test_who_stands_between_reads_what_nodes_say_only_without_tls(has_tls: bool) -> None:
    async def scenario() -> None:
        credentials = [OURS.credentials(each) if has_tls else PeerCredentials() for each in (A, B)]
        a, b = new_node(A, credentials[0]), new_node(B, credentials[1])
        between = Between(b)
        async with between.listening() as address, running(a, b, linked=False):
            a.peers.set_peers({B: address})
            await a.until_connected(B)
            assert a.peers.send(SAY, B, b"I lead")
            await b.until(lambda: b.messages == [(A, b"I lead")], "the message")
            assert await a.peers.request(ASK, B, b"tell me", 20_000) == b"tell me"
            for words in (b"I lead", b"tell me", CLUSTER.encode()):
                assert (words in between.said) is not has_tls

    run(scenario)


def test_a_damaged_byte_ends_the_connection_and_another_one_is_there_at_once() -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        between = Between(b)
        async with between.listening() as address, running(a, b, linked=False):
            a.peers.set_peers({B: address})
            await a.until_connected(B)
            between.damages_at = len(between.said)
            a.peers.send(SAY, B, b"I lead")
            await a.until(lambda: [event[0] for event in a.events] == ["connected", "lost", "connected"], "a new link")
            assert b.messages == []
            assert await a.peers.request(ASK, B, b"x", 20_000) == b"x"

    run(scenario)


def test_a_recorded_conversation_is_of_no_use_later() -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        between = Between(b)
        async with between.listening() as address, running(a, b, linked=False):
            a.peers.set_peers({B: address})
            await a.until_connected(B)
            assert a.peers.send(SAY, B, b"I lead")
            await b.until(lambda: b.messages == [(A, b"I lead")], "the message")
            heard = await say(b.address, None, between.said)
            assert CLUSTER.encode() not in heard
            assert b.messages == [(A, b"I lead")]
            assert a.peers.is_connected(B)

    run(scenario)


def test_a_secret_beside_the_certificates_counts_too() -> None:
    async def scenario() -> None:
        a, b = (new_node(each, OURS.credentials(each, secret=SECRET)) for each in (A, B))
        c = new_node(C)
        async with running(a, b):
            assert await a.peers.request(ASK, B, b"x", 20_000) == b"x"
            async with running(c, linked=False):
                c.peers.set_peers({A: a.address})
                await asyncio.sleep(0.3)
                assert not c.peers.is_connected(A)
                assert c.events == []

    run(scenario)


def test_a_stranger_with_the_secret_alone_gets_nothing() -> None:
    async def scenario() -> None:
        a = new_node(A, OURS.credentials(A, secret=SECRET))
        b = new_node(B, PeerCredentials(secrets=ClusterSecrets([SECRET])))
        async with running(a, b, linked=False):
            b.peers.set_peers({A: a.address})
            await asyncio.sleep(0.3)
            assert not b.peers.is_connected(A)
            assert a.asked_by == []

    run(scenario)


TLS_1_2 = dialling_context(OURS.issue(B))
TLS_1_2.maximum_version = ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize(
    ("context", "reason", "message"),
    [
        pytest.param(None, "tls-failed", "it does not speak TLS", id="no TLS"),
        pytest.param(dialling_context(None), "tls-failed", "it shows no certificate", id="no certificate"),
        pytest.param(dialling_context(OTHERS.issue(B)), "tls-failed", "unable to get", id="others' authority"),
        pytest.param(dialling_context(OTHERS.key_and_chain), "tls-failed", "self-signed", id="self-signed"),
        pytest.param(dialling_context(OURS.issue(B, 3)), "tls-failed", "certificate has expired", id="expired"),
        pytest.param(dialling_context(OURS.issue(None)), "not-proven", "names no node", id="a client's"),
        pytest.param(TLS_1_2, "tls-failed", "does not speak TLS 1.3", id="TLS 1.2"),
    ],
)
def test_a_stranger_gets_nothing(
    context: ssl.SSLContext | None, reason: str, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        async with running(a, b):
            for _ in range(3):
                heard = await say(a.address, context, HELLO, MESSAGE)
                assert len(heard) in ((0, 7) if context is None else (0,))  # An alert has 7 bytes.
            assert a.messages == []
            assert a.asked_by == []
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"
            assert [event[0] for event in b.events] == ["connected"]
            (line,) = [each for each in told(caplog) if "peer refused" in each]  # Once, of three times.
            assert f"node={A}" in line
            assert f"reason='{reason}'" in line
            assert message in line

    run(scenario)


def test_a_node_cannot_say_hello_with_the_certificate_of_another_one(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a = new_node(A)
        async with running(a):
            heard = await say(a.address, dialling_context(OURS.issue(C)), HELLO)
            assert heard[4] == FrameKind.REJECT
            assert decode_rejection(memoryview(heard)[5:]).reason == RejectReason.WRONG_CERTIFICATE
            assert CLUSTER.encode() not in heard

    run(scenario)
    (line,) = told(caplog)
    assert "it has shown the certificate of node 4001, and says that it is node 100" in line


def test_a_node_that_answers_in_anothers_place_is_told_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, c = new_node(A), new_node(C)
        between = Between(c)
        async with between.listening() as address, running(a, c, linked=False):
            a.peers.set_peers({B: address})
            await asyncio.sleep(0.3)
            assert not a.peers.is_connected(B)
            assert a.events == c.events == []
            assert c.asked_by == []

    run(scenario)
    assert [line for line in told(caplog) if "node 100 was dialled, and has shown the certificate of node 4001" in line]


@pytest.mark.parametrize(
    ("shown", "message"),
    [
        pytest.param(OTHERS.issue(B), "unable to get local issuer", id="others' authority"),
        pytest.param(OTHERS.key_and_chain, "self-signed certificate", id="self-signed"),
        pytest.param(OURS.issue(B, 3), "certificate has expired", id="expired"),
        pytest.param(OURS.issue(None), "unsuitable certificate purpose", id="a client's"),
    ],
)
def test_who_listens_in_a_nodes_place_is_told_nothing(
    shown: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        heard: list[bytes] = []

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            heard.append(await rest_of(reader))
            writer.close()

        server = await asyncio.start_server(listen, LOOPBACK, 0, ssl=listening_context(shown))
        a = new_node(A)
        async with running(a):
            a.peers.set_peers({B: Address(LOOPBACK, server.sockets[0].getsockname()[1])})
            await asyncio.sleep(0.3)
            assert not a.peers.is_connected(B)
        server.close()
        assert b"".join(heard) == b""

    run(scenario)
    (line,) = [line for line in told(caplog) if "peer refused" in line]
    assert "reason='tls-failed'" in line
    assert message in line


@pytest.mark.parametrize("secret", [None, SECRET], ids=["nothing", "secret"])
@pytest.mark.parametrize("dials", ["TLS", "plain"])
def test_nodes_with_and_without_tls_both_say_so(
    dials: str, secret: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        plain = PeerCredentials(secrets=None if secret is None else ClusterSecrets([secret]))
        a, b = new_node(A, OURS.credentials(A, secret=secret)), new_node(B, plain)
        async with running(a, b, linked=False):
            if dials == "TLS":
                a.peers.set_peers({B: b.address})
            else:
                b.peers.set_peers({A: a.address})
            await asyncio.sleep(0.5)
            assert a.events == b.events == []

    run(scenario)
    of_a, of_b = ([line for line in told(caplog) if f"refused node={each} " in line] for each in (A, B))
    assert len(of_a) == len(of_b) == 1
    assert "reason='tls-failed'" in of_a[0]
    assert "peer_certificate_file" in of_a[0]
    assert "it speaks TLS, and this node has no peer_certificate_file" in of_b[0]


def test_a_node_that_is_not_trusted_hears_why_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B, OTHERS.credentials(B, OURS))
        async with running(a, b, linked=False):
            b.peers.set_peers({A: a.address})
            await asyncio.sleep(0.5)
            assert not b.peers.is_connected(A)

    run(scenario)
    of_a, of_b = ([line for line in told(caplog) if f"refused node={each} " in line] for each in (A, B))
    assert len(of_a) == len(of_b) == 1
    assert "its certificate is not accepted" in of_a[0]
    assert "it does not trust the authority of this node's certificate" in of_b[0]


def test_a_flood_of_handshakes_that_do_not_end_is_bounded_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = new_node(A, config=PeerConfig(max_unintroduced=5)), new_node(B)
        hello = ssl.MemoryBIO()
        said = dialling_context(None).wrap_bio(ssl.MemoryBIO(), hello)
        with pytest.raises(ssl.SSLWantReadError):
            said.do_handshake()
        async with running(a, b):
            strangers = []
            for number in range(50):
                reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
                writer.write(hello.read()[: 100 + number] if number % 2 else b"\x16\x03\x01")
                strangers.append((reader, writer))
            early = strangers[:45]  # Pushed out at once, long before their time is over.
            async with asyncio.timeout(1.5):
                for reader, _ in early:
                    await rest_of(reader)
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"
            assert [event[0] for event in b.events] == ["connected"]
            for _, writer in strangers:
                writer.close()

    run(scenario)
    assert not [line for line in told(caplog) if "refused" in line]


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00"], ids=["silent", "begun"])
def test_a_handshake_that_does_not_get_on_is_ended(said: bytes) -> None:
    async def scenario() -> None:
        a = new_node(A, config=PeerConfig(connect_timeout_ms=200))
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.write(said)
            assert await rest_of(reader) == b""
            writer.close()

    run(scenario)


def test_who_shakes_hands_and_says_no_more_is_not_waited_for() -> None:
    async def scenario() -> None:
        a = new_node(A, config=PeerConfig(connect_timeout_ms=200))
        async with running(a):
            assert await say(a.address, dialling_context(OURS.issue(B))) == b""

    run(scenario)


def test_an_end_that_takes_the_connection_and_is_silent_is_left() -> None:
    async def scenario() -> None:
        ended = asyncio.Event()

        async def be_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await rest_of(reader)
            ended.set()
            writer.close()

        server = await asyncio.start_server(be_silent, LOOPBACK, 0)
        a = new_node(A, config=PeerConfig(connect_timeout_ms=200))
        async with running(a):
            a.peers.set_peers({B: Address(LOOPBACK, server.sockets[0].getsockname()[1])})
            await asyncio.wait_for(ended.wait(), 20)
        server.close()

    run(scenario)


def test_what_ended_is_freed_at_once() -> None:
    def layers() -> int:
        return sum(isinstance(each, PeerTlsLayer) for each in gc.get_objects())

    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        async with running(a, b):
            gc.collect()
            gc.disable()
            try:
                before = layers()
                for context in (None, dialling_context(None), dialling_context(OURS.issue(C))):
                    for _ in range(5):
                        await say(a.address, context, HELLO)
                b.peers.set_peers({})
                b.peers.set_peers({A: a.address})
                await b.until(lambda: len(b.events) == 2, "another link")
                await asyncio.sleep(0.1)
                assert layers() <= before
            finally:
                gc.enable()

    run(scenario)


def test_a_new_certificate_disturbs_nothing() -> None:
    async def scenario() -> None:
        a, b = new_node(A), new_node(B)
        async with running(a, b):
            for node in (a, b):
                node.peers.use_credentials(OURS.credentials(node.node_id))
                assert await a.peers.request(ASK, B, b"not even a moment", 20_000) == b"not even a moment"
            assert [event[0] for event in a.events + b.events] == ["connected"] * 2
            # The next connection has the new one.
            b.peers.set_peers({})
            b.peers.set_peers({A: a.address})
            await b.until(lambda: len(b.events) == 2, "another link")
            assert await b.peers.request(ASK, A, b"x", 20_000) == b"x"

    run(scenario)


def test_with_the_last_step_to_a_new_authority_old_connections_end_and_are_there_again() -> None:
    async def scenario() -> None:
        nodes = a, b = new_node(A), new_node(B)
        async with running(a, b):
            for node in nodes:
                node.peers.use_credentials(OURS.credentials(node.node_id, OTHERS))
            for node in nodes:
                node.peers.use_credentials(OTHERS.credentials(node.node_id, OURS))
            assert await a.peers.request(ASK, B, b"not even a moment", 20_000) == b"not even a moment"
            assert [event[0] for event in a.events + b.events] == ["connected"] * 2

            a.peers.use_credentials(OTHERS.credentials(A))
            await a.until(lambda: [event[0] for event in a.events] == ["connected", "lost", "connected"], "a new link")
            await b.until(lambda: [event[0] for event in b.events] == ["connected", "lost", "connected"], "another")
            b.peers.use_credentials(OTHERS.credentials(B))
            assert await b.peers.request(ASK, A, b"nor now", 20_000) == b"nor now"
            assert await a.peers.request(ASK, B, b"nor now", 20_000) == b"nor now"
            assert len(a.events) == len(b.events) == 3

    run(scenario)
