"""A stranger at the peer port: who is not known can ask to join, and nothing that it says lasts or disturbs anybody."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any
from uuid import UUID

import pytest

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.config import PeerConfig
from quorate.transport.peers.frames import FrameKind, encode_frame, encode_message, encode_request
from quorate.transport.peers.hello import Hello, RejectReason, decode_hello, decode_rejection, encode_hello
from tests.integration.peer_nodes import ASK, CLUSTER, LOOPBACK, SAY, Node, new_hello, read_frame, running

# Not 1, 2, 3: an id must never pass for an index.
A, B, STRANGER = NodeId(7), NodeId(100), NodeId(666)
FOLDER_OF_A, FOLDER_OF_B = DirectoryId(UUID(int=7)), DirectoryId(UUID(int=100))

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def say_hello(to: Node, hello: Hello) -> tuple[Ends, FrameKind, bytes]:
    reader, writer = await asyncio.open_connection(LOOPBACK, to.peers.port)
    writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(hello)]))
    kind, body = await asyncio.wait_for(read_frame(reader), 20)
    return (reader, writer), kind, body


async def until_closed(ends: Ends) -> bytes:
    """What still came; a reset is an end as good as another."""
    try:
        return await asyncio.wait_for(ends[0].read(), 20)
    except ConnectionResetError:
        return b""
    finally:
        ends[1].close()


def test_a_reject_does_not_tell_the_cluster_id(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            ends, kind, body = await say_hello(a, new_hello(STRANGER, A, "green"))
            assert kind is FrameKind.REJECT
            assert CLUSTER.encode() not in body
            assert decode_rejection(memoryview(body)).reason == RejectReason.WRONG_CLUSTER
            await until_closed(ends)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    # Whoever has misconfigured a node finds both ids in the log.
    assert f"cluster={CLUSTER}" in caplog.text
    assert "green" in caplog.text


def test_a_stranger_is_told_no_data_folder() -> None:
    async def scenario() -> None:
        a = Node(A, directory_id=FOLDER_OF_A)
        a.strangers.add(STRANGER)
        a.directories[STRANGER] = FOLDER_OF_B
        async with running(a):
            hello = new_hello(STRANGER, A, directory_id=FOLDER_OF_B)
            ends, kind, body = await say_hello(a, hello)
            assert kind is FrameKind.HELLO
            answer = decode_hello(memoryview(body))
            assert isinstance(answer, Hello)
            assert answer.directory_id == answer.target_directory_id == NO_DIRECTORY
            ends[1].close()

    run(scenario())


@pytest.mark.parametrize("claimed", [NO_DIRECTORY, DirectoryId(UUID(int=9))], ids=["none", "another"])
def test_an_impostor_without_the_data_folder_does_not_end_the_link_of_the_node_it_claims_to_be(
    claimed: DirectoryId,
) -> None:
    async def scenario() -> None:
        a, b = Node(A, directory_id=FOLDER_OF_A), Node(B, directory_id=FOLDER_OF_B)
        a.directories[B], b.directories[A] = FOLDER_OF_B, FOLDER_OF_A
        async with running(a, b):
            for _ in range(50):
                ends, kind, _ = await say_hello(a, new_hello(B, A, directory_id=claimed))
                assert kind is FrameKind.REJECT
                await until_closed(ends)
            assert b.peers.send(SAY, A, b"still here")
            await a.until(lambda: a.messages == [(B, b"still here")], "the message")
            assert [event[0] for event in b.events] == ["connected"]

    run(scenario())


def test_a_message_of_a_stranger_is_not_listened_to_but_it_may_join() -> None:
    async def scenario() -> None:
        a = Node(A)
        a.strangers.add(STRANGER)
        async with running(a):
            ends, _, _ = await say_hello(a, new_hello(STRANGER, A))
            ends[1].writelines(encode_message(SAY, [b"I lead"]))
            ends[1].writelines(encode_request(1, ASK, [b"join"]))
            assert (await asyncio.wait_for(read_frame(ends[0]), 20))[0] is FrameKind.RESPONSE
            assert a.messages == []
            assert a.asked_by == [(STRANGER, False)]
            ends[1].close()

    run(scenario())


def test_a_node_that_names_this_nodes_data_folder_is_no_stranger() -> None:
    """It joined while this node was away: it has read the cluster's metadata, which this node has yet to hear."""

    async def scenario() -> None:
        a = Node(A, directory_id=FOLDER_OF_A)
        a.strangers.add(B)
        async with running(a):
            ends, _, body = await say_hello(a, new_hello(B, A, target_directory_id=FOLDER_OF_A))
            answer = decode_hello(memoryview(body))
            assert isinstance(answer, Hello)
            assert answer.directory_id == FOLDER_OF_A
            ends[1].writelines(encode_message(SAY, [b"I lead"]))
            await a.until(lambda: a.messages == [(B, b"I lead")], "the message")

            # Nobody has said where it can be dialled but itself, so it is answered where it has called.
            assert a.peers.send(SAY, B, b"so be it")
            kind, body = await asyncio.wait_for(read_frame(ends[0]), 20)
            assert (kind, body) == (FrameKind.MESSAGE, bytes([SAY]) + b"so be it")
            ends[1].close()

    run(scenario())


def test_messages_reach_a_node_that_is_not_dialled_and_nothing_is_sent_to_strangers() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b, linked=False):
            b.peers.set_peers({A: a.address})
            await b.until_connected(A)
            b.peers.send(SAY, A, b"I have moved")
            await a.until(lambda: a.messages == [(B, b"I have moved")], "the message")
            assert a.peers.send(SAY, B, b"noted")
            await b.until(lambda: b.messages == [(A, b"noted")], "the answer")
            assert a.events == []  # It dialled nobody.

            a.strangers.add(STRANGER)
            ends, _, _ = await say_hello(a, new_hello(STRANGER, A))
            assert not a.peers.send(SAY, STRANGER, b"secret")
            ends[1].close()

    run(scenario())


def test_a_stranger_may_send_no_large_frames_until_it_has_become_known() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(guest_max_frame_bytes=1000))
        a.strangers.update({STRANGER, B})
        async with running(a):
            ends, _, _ = await say_hello(a, new_hello(STRANGER, A))
            ends[1].write((2000).to_bytes(4, "big"))
            assert await until_closed(ends) == b""

            ends, _, _ = await say_hello(a, new_hello(B, A))
            ends[1].writelines(encode_request(1, ASK, [b"join"]))
            assert (await asyncio.wait_for(read_frame(ends[0]), 20))[0] is FrameKind.RESPONSE
            a.strangers.discard(B)
            a.peers.review()
            ends[1].writelines(encode_request(2, ASK, [b"x" * 100_000]))
            kind, body = await asyncio.wait_for(read_frame(ends[0]), 20)
            assert (kind, len(body)) == (FrameKind.RESPONSE, 100_008)
            assert a.asked_by == [(B, False), (B, True)]
            ends[1].close()

    run(scenario())


def test_an_insane_request_ends_its_connection_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            ends, _, _ = await say_hello(a, new_hello(B, A))
            ends[1].writelines(encode_request(1, ASK, [b"insane"]))
            assert await until_closed(ends) == b""

    with caplog.at_level(logging.WARNING):
        run(scenario())
    (line,) = caplog.records
    assert line.exc_info is None
    assert "no sound node asks for this" in line.getMessage()


@pytest.mark.parametrize("introduced", [False, True], ids=["silent", "introduced"])
def test_a_flood_of_strangers_is_bounded_and_does_not_disturb_the_links(introduced: bool) -> None:
    async def scenario() -> None:
        a, b = Node(A, config=PeerConfig(max_unintroduced=5, max_guests=5)), Node(B)
        a.strangers.update(range(1000, 2000))
        async with running(a, b):
            strangers: list[Ends] = []
            for number in range(100):
                if introduced:
                    ends, _, _ = await say_hello(a, new_hello(1000 + number, A))
                else:
                    ends = await asyncio.open_connection(LOOPBACK, a.peers.port)
                strangers.append(ends)
            assert await b.peers.request(ASK, A, b"undisturbed", 20_000) == b"undisturbed"
            for ends in strangers[:95]:
                assert await until_closed(ends) == b""
            assert [event[0] for event in b.events] == ["connected"]
            for _, writer in strangers[95:]:
                writer.close()

    run(scenario())


def test_made_up_names_do_not_silence_the_log_for_good(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            for number in range(60):
                ends, _, _ = await say_hello(a, new_hello(1000 + number, A, "green"))
                await until_closed(ends)

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert 0 < len(caplog.records) <= 20
