"""Who may talk to a node over its peer listener, and what becomes of everybody else."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import DirectoryId, NodeId
from quorate.transport.peers.config import Address, PeerConfig
from quorate.transport.peers.errors import PeerUnreachable
from quorate.transport.peers.frames import FrameKind, encode_frame, encode_message
from quorate.transport.peers.hello import MAX_HELLO_BYTES, RejectReason, decode_rejection, encode_hello
from tests.integration.peer_nodes import ASK, CLUSTER, LOOPBACK, SAY, Node, new_hello, read_frame, running

# Not 1, 2, 3: an id must never pass for an index.
A, B, C = NodeId(7), NodeId(100), NodeId(4001)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_node_never_dials_itself(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):  # Every node is given all addresses, its own among them.
            assert await a.peers.request(ASK, B, b"by now it would have", 20_000) == b"by now it would have"

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert caplog.records == []


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "reason"),
    [("green", B, RejectReason.WRONG_CLUSTER), (CLUSTER, C, RejectReason.WRONG_TARGET)],
)
def test_stranger_is_refused_and_the_refusal_logged_once(
    cluster_id: str, node_id: int, reason: RejectReason, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        retry_fast = PeerConfig(reconnect_backoff_min_ms=1, reconnect_backoff_max_ms=2)
        a, stranger = Node(A, config=retry_fast), Node(node_id, cluster_id=cluster_id)
        async with running(a, stranger, linked=False):
            a.peers.set_peers({B: stranger.address})
            await asyncio.sleep(0.5)
            assert not a.peers.is_connected(B)
            assert not a.peers.send(SAY, B, b"secret")
            with pytest.raises(PeerUnreachable):
                await a.peers.request(ASK, B, b"secret", 1000)
            assert a.events == stranger.events == []

    with caplog.at_level(logging.WARNING):
        run(scenario())
    # One line from each side, however often it was tried.
    refusals = [record.getMessage() for record in caplog.records if "peer refused" in record.getMessage()]
    assert [reason in refusal for refusal in refusals] == [True, True]


def test_a_node_that_lost_its_data_folder_talks_to_nobody_until_it_is_forgotten() -> None:
    async def scenario() -> None:
        retry_fast = PeerConfig(reconnect_backoff_min_ms=1, reconnect_backoff_max_ms=2)
        had, has = DirectoryId(UUID(int=1)), DirectoryId(UUID(int=2))
        a, emptied = Node(A, config=retry_fast), Node(B, config=retry_fast, directory_id=has)
        a.directories[B] = had
        async with running(a, emptied, linked=False):
            a.peers.set_peers({B: emptied.address})
            emptied.peers.set_peers({A: a.address})
            await asyncio.sleep(0.5)
            assert a.events == []
            assert not a.peers.is_connected(B)
            assert not emptied.peers.is_connected(A)

            del a.directories[B]
            await a.until_connected(B)
            await emptied.until_connected(A)

    run(scenario())


def test_a_node_whose_data_folder_turns_out_to_be_another_is_cut_off() -> None:
    async def scenario() -> None:
        had, has = DirectoryId(UUID(int=1)), DirectoryId(UUID(int=2))
        a, emptied = Node(A), Node(B, directory_id=has)
        async with running(a, emptied):
            a.peers.review()
            assert a.peers.is_connected(B)

            a.directories[B] = had
            a.peers.review()
            assert not a.peers.is_connected(B)
            await emptied.until(lambda: not emptied.peers.is_connected(A), "the link to end")
            await asyncio.sleep(0.5)
            assert not a.peers.is_connected(B)
            assert not emptied.peers.is_connected(A)

    run(scenario())


def test_refused_node_is_told_why() -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A, "green"))]))
            kind, body = await asyncio.wait_for(read_frame(reader), 20)
            assert kind is FrameKind.REJECT
            rejection = decode_rejection(memoryview(body))
            assert rejection.reason == RejectReason.WRONG_CLUSTER
            assert "green" in rejection.message
            assert await asyncio.wait_for(reader.read(), 20) == b""
            writer.close()

    run(scenario())


@pytest.mark.parametrize(
    "opening",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", id="http"),
        pytest.param(b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04test", id="kafka client"),
        pytest.param((MAX_HELLO_BYTES + 1).to_bytes(4, "big"), id="oversize"),
        pytest.param(b"\xff" * 64, id="garbage"),
        pytest.param(b"".join(encode_message(SAY, [b"no hello"])), id="no hello"),
        pytest.param(b"".join(encode_frame(FrameKind.HELLO, [b"\x00\x05\xc1"])), id="malformed hello"),
    ],
)
def test_what_is_no_peer_is_cut_off_and_disturbs_nobody(opening: bytes) -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.write(opening)
            assert await _received_until_closed(reader) == b""
            writer.close()
            assert a.messages == []
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"

    run(scenario())


def test_connection_without_a_hello_is_cut_off() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(connect_timeout_ms=50))
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            assert await _received_until_closed(reader) == b""
            writer.close()

    run(scenario())


def test_oversize_frame_of_an_introduced_peer_ends_its_connection() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(max_frame_bytes=1000))
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A))]))
            assert (await asyncio.wait_for(read_frame(reader), 20))[0] is FrameKind.HELLO
            writer.writelines(encode_message(SAY, [b"x" * 900]))
            writer.write((2000).to_bytes(4, "big"))
            assert await _received_until_closed(reader) == b""
            writer.close()
            assert a.messages == [(B, b"x" * 900)]

    run(scenario())


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_no_wildcard_address_is_ever_advertised(host: str) -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        with pytest.raises(QuorateError):
            await a.peers.start(Address(host, 0))
        async with running(b, linked=False):
            await a.peers.start(Address("0.0.0.0", 0), Address(host="a.example", port=1234))
            a.peers.set_peers({B: b.address})
            await a.until_connected(B)
            await a.peers.stop()

    run(scenario())


def test_newer_connection_of_a_peer_replaces_the_older() -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            ends = []
            for _ in range(2):
                reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
                writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A))]))
                await asyncio.wait_for(read_frame(reader), 20)
                ends.append((reader, writer))
            assert await _received_until_closed(ends[0][0]) == b""
            ends[1][1].writelines(encode_message(SAY, [b"the newer"]))
            await a.until(lambda: a.messages == [(B, b"the newer")], "the message")
            for _, writer in ends:
                writer.close()

    run(scenario())


async def _received_until_closed(reader: asyncio.StreamReader) -> bytes:
    """What still came; a reset is an end as good as another."""
    try:
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionResetError:
        return b""
