"""The transport between nodes, over real connections: order, independence, and word of a death."""

import asyncio
import subprocess
import sys
from collections.abc import Coroutine
from typing import Any

import pytest

from quorate.kernel.ids import NodeId
from quorate.transport.peers.config import Address, PeerConfig
from quorate.transport.peers.errors import OutcomeUnknown, PeerTimeout, PeerUnreachable
from quorate.transport.peers.frames import FrameKind, encode_frame
from quorate.transport.peers.hello import encode_hello
from tests.integration.peer_nodes import ASK, CLUSTER, LOOPBACK, SAY, Node, ScriptedPeer, new_hello, read_frame, running

# Not 1, 2, 3: an id must never pass for an index.
A, B, C = NodeId(7), NodeId(100), NodeId(4001)
PATIENT = PeerConfig(reconnect_backoff_min_ms=60_000, reconnect_backoff_max_ms=60_000)


def run(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


def test_messages_and_requests_keep_their_order_per_peer_under_load() -> None:
    async def scenario() -> None:
        a, b, c = Node(A), Node(B), Node(C)
        async with running(a, b, c):
            for number in range(6000):
                payload = b"%d:" % number + b"x" * (number % 700)
                assert a.peers.send(SAY, B, [payload[:3], payload[3:]])
                assert c.peers.send(SAY, B, payload)
                if number % 500 == 0:
                    assert await a.peers.request(ASK, B, b"in between", 20_000) == b"in between"
                    # It was served in its turn, after all messages before it.
                    assert len([sender for sender, _ in b.messages if sender == A]) == number + 1
            await b.until(lambda: len(b.messages) == 12_000, "all messages")
        expected = [b"%d:" % number + b"x" * (number % 700) for number in range(6000)]
        for sender in (A, C):
            assert [payload for received_from, payload in b.messages if received_from == sender] == expected

    run(scenario())


def test_one_slow_peer_does_not_block_the_others() -> None:
    async def scenario() -> None:
        a, c = Node(A, config=PeerConfig(queue_max_bytes=1 << 20)), Node(C)
        stuck = asyncio.Event()

        async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await stuck.wait()

        async with ScriptedPeer(B, read_nothing) as stuck_address, running(a, c, linked=False):
            a.peers.set_peers({B: stuck_address, C: c.address})
            await a.until_connected(B)
            await a.until_connected(C)
            accepted = 0
            while a.peers.send(SAY, B, b"x" * 100_000):
                accepted += 1
                assert accepted < 10_000, "the queue to the slow peer has no bound"
                await asyncio.sleep(0)
            with pytest.raises(PeerUnreachable):
                await a.peers.request(ASK, B, b"also queued", 1000)

            for number in range(1000):
                assert a.peers.send(SAY, C, b"%d" % number)
            assert await a.peers.request(ASK, C, b"still served", 20_000) == b"still served"
            assert len(c.messages) == 1000
            assert a.peers.is_connected(B)
            assert not a.peers.send(SAY, B, b"still full")
            stuck.set()

    run(scenario())


def test_largest_message_and_answer_go_through_and_larger_ones_are_refused() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        largest = bytes(PeerConfig().max_frame_bytes)
        async with running(a, b):
            assert await a.peers.request(ASK, B, largest, 60_000) == largest
            assert a.peers.send(SAY, B, largest)
            await b.until(lambda: len(b.messages) == 1, "the snapshot")
            assert b.messages[0][1] == largest
            assert not a.peers.send(SAY, B, [largest, b"x"])
            with pytest.raises(PeerUnreachable):
                await a.peers.request(ASK, B, [largest, b"x"], 1000)
            assert a.peers.is_connected(B)

    run(scenario())


def test_answers_come_to_the_requests_they_belong_to() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):
            payloads = [b"%s-%d" % (kind, number) for number in range(50) for kind in (b"later", b"now")]
            answers = await asyncio.gather(*(a.peers.request(ASK, B, payload, 20_000) for payload in payloads))
            assert answers == payloads

    run(scenario())


def test_more_requests_and_answers_than_the_network_holds_do_not_lock_each_other_out() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        payloads = [bytes([number]) * 1_000_000 for number in range(30)]
        async with running(a, b):
            requests = [a.peers.request(ASK, B, payload, 60_000) for payload in payloads[:15]]
            requests += [b.peers.request(ASK, A, payload, 60_000) for payload in payloads[15:]]
            assert await asyncio.gather(*requests) == payloads

    run(scenario())


def test_request_that_fails_or_is_not_answered_has_an_unknown_outcome() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):
            with pytest.raises(OutcomeUnknown, match="no such thing"):
                await a.peers.request(ASK, B, b"raise", 20_000)
            with pytest.raises(PeerTimeout):
                await a.peers.request(ASK, B, b"hang", 10)
            b.unanswered[0].set_result(b"too late")
            assert await a.peers.request(ASK, B, b"next", 20_000) == b"next"

    run(scenario())


def test_too_many_requests_in_flight_are_refused_and_the_link_stays() -> None:
    async def scenario() -> None:
        a, b = Node(A, config=PeerConfig(max_requests_in_flight=2)), Node(B)
        async with running(a, b):
            hanging = [asyncio.ensure_future(a.peers.request(ASK, B, b"hang", 20_000)) for _ in range(2)]
            await b.until(lambda: len(b.unanswered) == 2, "both requests")
            with pytest.raises(PeerUnreachable):
                await a.peers.request(ASK, B, b"one more", 20_000)
            for unanswered in b.unanswered:
                unanswered.set_result(b"done")
            assert await asyncio.gather(*hanging) == [b"done", b"done"]
            assert await a.peers.request(ASK, B, b"again", 20_000) == b"again"

    run(scenario())


def test_nothing_is_sent_to_itself_or_to_a_node_that_nobody_named() -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            for target in (A, B):  # Itself, and one that nobody named.
                assert not a.peers.send(SAY, target, b"x")
                assert not a.peers.is_connected(target)
                with pytest.raises(PeerUnreachable):
                    await a.peers.request(ASK, target, b"x", 1000)

    run(scenario())


def test_killed_process_is_reported_dead_and_requests_in_flight_fail_at_once() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(silence_timeout_ms=600_000))
        command = [sys.executable, "-m", "tests.integration.peer_process", str(B), CLUSTER]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            port = int(await asyncio.to_thread(process.stdout.readline))
            async with running(a):
                a.peers.set_peers({B: Address(host=LOOPBACK, port=port)})
                await a.until_connected(B)
                hanging = [asyncio.ensure_future(a.peers.request(ASK, B, b"hang", 600_000)) for _ in range(3)]
                assert await a.peers.request(ASK, B, b"alive", 20_000) == b"alive"
                process.kill()
                for request in hanging:
                    with pytest.raises(OutcomeUnknown):
                        await asyncio.wait_for(request, 20)
                await a.until(lambda: ("died", B) in a.events, "the death")
                assert a.events == [("connected", B, 1), ("lost", B), ("died", B)]
                assert a.peers.is_refusing(B)
                assert not a.peers.send(SAY, B, b"x")

    run(scenario())


def test_death_is_seen_by_dialling_at_once_not_after_a_backoff() -> None:
    async def scenario() -> None:
        a, b = Node(A, config=PATIENT), Node(B)
        async with running(a, b):
            await b.peers.stop()
            await a.until(lambda: ("died", B) in a.events, "the death")

    run(scenario())


def test_death_is_seen_at_a_host_name_with_several_addresses() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b, linked=False):
            a.peers.set_peers({B: Address(host="localhost", port=b.peers.port)})
            await a.until_connected(B)
            await b.peers.stop()
            await a.until(lambda: ("died", B) in a.events, "the death")

    run(scenario())


def test_a_link_whose_watcher_fails_is_reported_by_name() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        reported: list[dict[str, object]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        async with running(a, b):
            a.fails_when_told = True
            await b.peers.stop()
            await a.until(lambda: bool(reported), "the report")
        assert reported[0]["message"] == f"link to peer {B} failed"

    run(scenario())


def test_reset_is_not_a_death() -> None:
    async def scenario() -> None:
        a = Node(A)
        connections: list[asyncio.StreamWriter] = []

        async def reset_the_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(writer)
            if len(connections) == 1:
                await read_frame(reader)
                writer.transport.abort()
            else:
                await reader.read()

        async with ScriptedPeer(B, reset_the_first) as address, running(a):
            a.peers.set_peers({B: address})
            await a.until_connected(B)
            a.peers.send(SAY, B, b"cut me off")
            await a.until(lambda: len(a.events) == 3, "the link to come back")
            assert a.events == [("connected", B, 1), ("lost", B), ("connected", B, 1)]

    run(scenario())


def test_restarted_peer_is_found_by_its_own_call_and_shows_a_new_incarnation() -> None:
    async def scenario() -> None:
        # With such a backoff only the restarted node's own hello can bring the link back.
        a, b = Node(A, config=PATIENT), Node(B, incarnation=1)
        async with running(a, b):
            port = b.peers.port
            await b.peers.stop()
            await a.until(lambda: ("died", B) in a.events, "the death")
            again = Node(B, incarnation=2)
            await again.peers.start(Address(LOOPBACK, port))
            again.peers.set_peers({A: a.address})
            await a.until(lambda: ("connected", B, 2) in a.events, "the new incarnation")
            assert not a.peers.is_refusing(B)
            assert a.peers.send(SAY, B, b"welcome back")
            await again.until(lambda: again.messages == [(A, b"welcome back")], "the message")
            await again.peers.stop()

    run(scenario())


def test_peer_that_comes_late_is_reached_after_a_backoff() -> None:
    async def scenario() -> None:
        a, placeholder, b = Node(A), Node(C), Node(B)
        async with running(placeholder, linked=False):
            port = placeholder.peers.port
        async with running(a, linked=False):
            a.peers.set_peers({B: Address(host=LOOPBACK, port=port)})
            while not a.peers.is_refusing(B):
                await asyncio.sleep(0.005)
            await b.peers.start(Address(LOOPBACK, port))
            await a.until_connected(B)
            assert a.events == [("connected", B, 1)]  # It never was connected: nothing was lost.
            await b.peers.stop()

    run(scenario())


def test_silent_peer_is_given_up() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(ping_interval_ms=10, silence_timeout_ms=100))

        async def never_answer_a_ping(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()

        async with ScriptedPeer(B, never_answer_a_ping) as address, running(a):
            a.peers.set_peers({B: address})
            await a.until(lambda: ("lost", B) in a.events, "the link to be given up")
            assert ("died", B) not in a.events

    run(scenario())


def test_idle_link_is_pinged() -> None:
    async def scenario() -> None:
        a = Node(A, config=PeerConfig(ping_interval_ms=10))
        pinged = asyncio.Event()

        async def wait_for_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            for _ in range(3):
                assert await read_frame(reader) == (FrameKind.PING, b"")
            pinged.set()
            await reader.read()

        async with ScriptedPeer(B, wait_for_pings) as address, running(a):
            a.peers.set_peers({B: address})
            await asyncio.wait_for(pinged.wait(), 20)

    run(scenario())


def test_ping_is_answered() -> None:
    async def scenario() -> None:
        a = Node(A)
        async with running(a):
            reader, writer = await asyncio.open_connection(LOOPBACK, a.peers.port)
            writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(new_hello(B, A))]))
            assert (await asyncio.wait_for(read_frame(reader), 20))[0] is FrameKind.HELLO
            writer.writelines(encode_frame(FrameKind.PING))
            assert await asyncio.wait_for(read_frame(reader), 20) == (FrameKind.PONG, b"")
            writer.close()

    run(scenario())


def test_set_peers_closes_links_and_dials_new_addresses() -> None:
    async def scenario() -> None:
        a, b, moved = Node(A), Node(B), Node(B, incarnation=2)
        async with running(a, b, moved, linked=False):
            a.peers.set_peers({B: b.address})
            await a.until_connected(B)
            a.peers.set_peers({B: moved.address})
            await a.until(lambda: ("connected", B, 2) in a.events, "the new address")
            a.peers.set_peers({})
            assert not a.peers.is_connected(B)
            assert not a.peers.send(SAY, B, b"x")
            assert a.events == [("connected", B, 1), ("connected", B, 2)]

    run(scenario())


def test_request_handler_is_cancelled_when_nobody_waits_for_its_answer_any_more() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):
            request = asyncio.ensure_future(a.peers.request(ASK, B, b"hang", 20_000))
            await b.until(lambda: len(b.unanswered) == 1, "the request")
            a.peers.set_peers({})
            with pytest.raises(OutcomeUnknown):
                await request
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(b.unanswered[0], 20)

    run(scenario())


def test_address_that_cannot_be_one_is_only_never_reached() -> None:
    async def scenario() -> None:
        a, b = Node(A), Node(B)
        impossible = [Address(host="x" * 300, port=1), Address(host=LOOPBACK, port=1 << 20), Address(host="", port=-1)]
        async with running(a, b, linked=False):
            for address in impossible:
                a.peers.set_peers({B: address})
                await asyncio.sleep(0.05)
                assert not a.peers.is_connected(B)
            a.peers.set_peers({B: b.address})
            await a.until_connected(B)

    run(scenario())


def test_links_work_on_uvloop_as_well() -> None:
    uvloop = pytest.importorskip("uvloop")

    async def scenario() -> None:
        a, b = Node(A), Node(B)
        async with running(a, b):
            big = b"x" * 5_000_000
            assert await a.peers.request(ASK, B, big, 20_000) == big
            await b.peers.stop()
            await a.until(lambda: ("died", B) in a.events, "the death")

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
