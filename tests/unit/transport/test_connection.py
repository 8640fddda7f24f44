"""One connection: replies in the order of the requests, back-pressure, and an end in good order."""

import asyncio
from collections.abc import Callable
from struct import pack
from typing import Any, cast

import pytest

from quorate.transport.connection import (
    CloseConnection,
    ConnectionLimits,
    FrameHandler,
    RequestDeadline,
    ServerConnection,
)
from quorate.transport.outbox import Reply
from quorate.transport.receive_memory import ReceiveMemory


class FakeTransport:
    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.reading = True
        self.closed = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def writelines(self, buffers: list[bytes]) -> None:
        self.writes.append(b"".join(buffers))

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True


class Peer:
    """A client's end: sends frames, and decides when each is answered."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits | None = None,
        memory: ReceiveMemory | None = None,
    ) -> None:
        self._loop = loop
        self.transport = FakeTransport()
        self.pending: dict[bytes, asyncio.Future[Reply | None]] = {}
        self.served: list[bytes] = []
        limits = limits or ConnectionLimits(max_frame_bytes=100)
        self.now_s = 0.0
        self.begun = 0
        self.connection = ServerConnection(self, self._open, limits, lambda: self.now_s, memory or ReceiveMemory())
        self.connection.connection_made(cast(Any, self.transport))

    def connection_opened(self, connection: ServerConnection) -> None:
        pass

    def connection_closed(self, connection: ServerConnection, reason: str | None) -> None:
        pass

    def has_to_look(self) -> None:
        self.begun += 1

    def _open(self, connection: ServerConnection) -> FrameHandler:
        return self._serve

    def send(self, *payloads: bytes) -> None:
        self.send_bytes(b"".join(pack(">i", len(payload)) + payload for payload in payloads))

    def send_bytes(self, data: bytes) -> None:
        room = self.connection.get_buffer(-1)
        room[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def _serve(self, frame: memoryview) -> "Reply | asyncio.Future[Reply | None] | None":
        payload = bytes(frame)
        self.served.append(payload)
        if payload.startswith((b"later", b"bulky")):
            reply = self.pending[payload] = self._loop.create_future()
            if payload.startswith(b"bulky"):
                self.connection.expect_bulky(reply)
            return reply
        if payload.startswith(b"none"):
            return None
        if payload.startswith(b"hold"):
            self.pending[payload] = self._loop.create_future()
            self.connection.hold(self.pending[payload])
            return None
        if payload.startswith(b"mute"):
            self.connection.mute(duration_ms=1)
        if payload.startswith(b"bad"):
            raise CloseConnection("bad request")
        return [payload]


def run(scenario: Callable[[asyncio.AbstractEventLoop], Any]) -> None:
    loop = asyncio.new_event_loop()
    try:
        loop.run_until_complete(scenario(loop))
    finally:
        loop.close()


async def turn() -> None:
    """Let callbacks that are due run."""
    for _ in range(3):
        await asyncio.sleep(0)


def test_all_that_one_read_answers_leaves_in_one_write() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"a", b"none", b"b", b"c")
        assert peer.transport.writes == [b"abc"]

    run(scenario)


def test_responses_out_of_request_order_on_one_connection() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1", b"a", b"later-2", b"b")
        assert peer.transport.writes == []
        peer.pending[b"later-2"].set_result([b"second"])
        await turn()
        assert peer.transport.writes == []
        peer.pending[b"later-1"].set_result([b"first"])
        await turn()
        assert b"".join(peer.transport.writes) == b"firstasecondb"

    run(scenario)


def test_too_many_requests_in_flight_stop_the_reading_until_some_are_answered() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop, ConnectionLimits(max_frame_bytes=100, max_requests_in_flight=2))
        peer.send(b"later-1", b"later-2", b"later-3", b"later-4")
        assert peer.served == [b"later-1", b"later-2"]
        assert not peer.transport.reading
        for number in range(1, 5):
            peer.pending[b"later-%d" % number].set_result([b"%d" % number])
            await turn()
        assert b"".join(peer.transport.writes) == b"1234"
        assert peer.transport.reading

    run(scenario)


def test_a_muted_connection_answers_but_serves_nothing_more_until_its_time_is_over() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1", b"mute", b"a", b"b")
        assert peer.served == [b"later-1", b"mute"]
        assert not peer.transport.reading
        assert not peer.connection.is_quiet
        peer.pending[b"later-1"].set_result([b"first"])
        await turn()
        assert b"".join(peer.transport.writes) == b"firstmute"
        while peer.served[-1] != b"b":
            await asyncio.sleep(0)
        assert b"".join(peer.transport.writes) == b"firstmuteab"
        assert peer.transport.reading

    run(scenario)


def test_what_comes_behind_a_request_that_holds_the_connection_waits_for_it() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1", b"hold-1", b"a", b"hold-2", b"b")
        assert peer.served == [b"later-1", b"hold-1"]
        assert not peer.transport.reading
        peer.pending[b"later-1"].set_result([b"first"])
        await turn()
        assert b"".join(peer.transport.writes) == b"first"
        peer.pending[b"hold-1"].set_result(None)
        await turn()
        assert peer.served[2:] == [b"a", b"hold-2"]
        peer.pending[b"hold-2"].set_exception(RuntimeError("whatever became of it"))
        await turn()
        assert b"".join(peer.transport.writes) == b"firstab"
        assert peer.transport.reading

    run(scenario)


def test_a_held_connection_is_lost_in_peace() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"hold", b"a")
        peer.transport.closed = True
        peer.connection.connection_lost(None)
        peer.pending[b"hold"].set_result(None)
        await turn()
        assert peer.served == [b"hold"]

    run(scenario)


def test_a_muted_connection_that_is_ended_closes_at_once() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"mute", b"a")
        peer.connection.end("the node stops")
        assert peer.transport.closed
        assert peer.served == [b"mute"]

    run(scenario)


def test_a_peer_that_does_not_take_its_replies_is_not_read_from() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.connection.pause_writing()
        assert peer.transport.reading  # Nothing has come that would have to wait.
        peer.send(b"a", b"b")
        assert not peer.transport.reading
        assert peer.served == []
        peer.connection.resume_writing()
        assert b"".join(peer.transport.writes) == b"ab"
        assert peer.transport.reading

    run(scenario)


@pytest.mark.parametrize("bad", [b"bad", b"x" * 101], ids=["unreadable", "oversized"])
def test_what_came_before_a_bad_request_is_still_answered(bad: bytes) -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1", bad, b"never served")
        assert not peer.transport.closed
        peer.pending[b"later-1"].set_result([b"first"])
        await turn()
        assert peer.transport.writes == [b"first"]
        assert peer.transport.closed
        assert b"never served" not in peer.served

    run(scenario)


def test_a_failed_request_ends_its_connection() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1")
        peer.pending[b"later-1"].set_exception(RuntimeError("broken"))
        await turn()
        assert peer.transport.closed

    run(scenario)


def test_a_lost_connection_cancels_what_it_waited_for() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1")
        peer.connection.connection_lost(None)
        assert peer.pending[b"later-1"].cancelled()

    run(scenario)


def test_stopping_answers_what_is_under_way_and_takes_nothing_new() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send(b"later-1")
        peer.connection.end("the node stops")
        assert not peer.transport.reading
        assert not peer.transport.closed
        peer.pending[b"later-1"].set_result([b"first"])
        await turn()
        assert peer.transport.writes == [b"first"]
        assert peer.transport.closed

    run(scenario)


DEADLINE = RequestDeadline(timeout_ms=10_000, min_bytes_per_second=10, hurry=10)


def test_a_request_has_to_come_whole_in_time_which_counts_from_its_first_byte() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.now_s = 1000.0
        assert not peer.connection.is_overdue(DEADLINE, hurried=False)
        peer.send_bytes(pack(">i", 50) + bytes(16))
        assert peer.begun == 1
        peer.now_s += 11
        peer.send_bytes(b"0")  # One more byte does not start the time anew.
        assert not peer.connection.is_overdue(DEADLINE, hurried=False)  # 21 bytes have come, which is 2.1 s more.
        assert peer.connection.is_overdue(DEADLINE, hurried=True)
        peer.now_s += 2
        assert peer.connection.is_overdue(DEADLINE, hurried=False)
        peer.send_bytes(bytes(33))
        assert len(peer.served) == 1
        assert not peer.connection.is_overdue(DEADLINE, hurried=True)

    run(scenario)


def test_the_next_request_that_comes_in_part_has_its_own_time() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send_bytes(b"\0")
        peer.now_s = 9.0
        peer.send_bytes(b"\0\0\1a" + b"\0\0")
        peer.now_s = 18.0
        assert not peer.connection.is_overdue(DEADLINE, hurried=False)
        peer.now_s = 20.0
        assert peer.connection.is_overdue(DEADLINE, hurried=False)

    run(scenario)


def test_the_time_in_which_a_request_is_not_read_does_not_count() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop)
        peer.send_bytes(pack(">i", 50) + b"1")
        peer.connection.pause_writing()
        peer.send_bytes(b"2")
        assert not peer.transport.reading
        peer.now_s = 1000.0
        assert not peer.connection.is_overdue(DEADLINE, hurried=True)
        peer.connection.resume_writing()
        assert peer.transport.reading
        assert not peer.connection.is_overdue(DEADLINE, hurried=False)
        peer.now_s += 11.0
        assert peer.connection.is_overdue(DEADLINE, hurried=False)

    run(scenario)


def test_a_connection_that_ends_gives_its_memory_back() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        memory = ReceiveMemory()
        peers = [Peer(loop, memory=memory) for _ in range(3)]
        for peer in peers:
            peer.send(b"later-1")
            peer.send_bytes(pack(">i", 50) + b"1")
        held_bytes = memory.held_bytes
        assert held_bytes > 0
        peers[0].connection.end("the node stops")
        assert memory.held_bytes < held_bytes
        for peer in peers:
            peer.connection.connection_lost(None)
        assert memory.held_bytes == 0

    run(scenario)


def test_few_requests_whose_answers_may_be_large_are_under_way_or_wait_to_be_sent() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        peer = Peer(loop, ConnectionLimits(max_frame_bytes=100, max_bulky_in_flight=2))
        peer.send(b"later-0", b"bulky-1", b"bulky-2", b"bulky-3", b"a")
        assert peer.served == [b"later-0", b"bulky-1", b"bulky-2"]
        assert not peer.transport.reading
        peer.pending[b"bulky-1"].set_result([b"1"])
        await turn()
        assert peer.served[-1] == b"bulky-2"  # The answer to the first is there, and has to wait.
        peer.pending[b"later-0"].set_result([b"0"])
        await turn()
        assert peer.served[-1] == b"bulky-3"
        for name in (b"bulky-2", b"bulky-3"):
            peer.pending[name].set_result([name[-1:]])
            await turn()
        assert b"".join(peer.transport.writes) == b"0123a"
        assert peer.transport.reading

    run(scenario)
