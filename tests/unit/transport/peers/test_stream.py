"""One connection between peers: frames however they are split, bounded queues, and signs of life."""

import gc
import weakref
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.transport.peers.config import PeerConfig
from quorate.transport.peers.frames import FRAME_OVERHEAD_BYTES, FrameKind, encode_frame
from quorate.transport.peers.hello import MAX_HELLO_BYTES
from quorate.transport.peers.stream import PeerStream
from quorate.transport.receive_memory import ReceiveMemory
from tests.unit.transport.peer_ends import FakeTransport, RecordingOwner, SteppedLoop, feed

CONFIG = PeerConfig(max_frame_bytes=1000_000, queue_max_bytes=1000, queue_max_messages=5, silence_timeout_ms=10_000)


class End:
    def __init__(
        self, *, introduced: bool = True, reads_while_blocked: bool = True, memory: ReceiveMemory | None = None
    ) -> None:
        self.memory = memory or ReceiveMemory()
        self.loop = SteppedLoop()
        self.transport = FakeTransport()
        self.owner = RecordingOwner()
        self.stream = PeerStream(
            cast(Any, self.loop), CONFIG, self.owner, self.memory, reads_while_blocked=reads_while_blocked
        )
        self.stream.connection_made(cast(Any, self.transport))
        if introduced:
            self.receive(encode_frame(FrameKind.HELLO))
            self.owner.frames.clear()

    def receive(self, frame: Any, largest_read: int = 1 << 30) -> None:
        feed(self.stream, b"".join(frame), largest_read)

    def send(self, payload: bytes) -> None:
        self.stream.send(encode_frame(FrameKind.MESSAGE, [payload]))


def message(payload: bytes) -> bytes:
    return b"".join(encode_frame(FrameKind.MESSAGE, [payload]))


@given(payloads=st.lists(st.binary(max_size=300), max_size=20), largest_read=st.integers(1, 500))
def test_frames_come_out_whole_and_in_order_however_they_are_split(payloads: list[bytes], largest_read: int) -> None:
    end = End()
    feed(end.stream, b"".join(map(message, payloads)), largest_read)

    assert end.owner.frames == [(FrameKind.MESSAGE, payload) for payload in payloads]


def test_largest_payload_is_taken_and_one_byte_more_is_not() -> None:
    end = End()
    largest = CONFIG.max_frame_bytes + FRAME_OVERHEAD_BYTES - 1
    end.receive([message(b"x" * largest)], 100_000)
    assert [len(payload) for _, payload in end.owner.frames] == [largest]

    end.receive([message(b"x" * (largest + 1))[:10]])
    assert end.transport.aborted


def test_stranger_cannot_announce_a_large_frame() -> None:
    end = End(introduced=False)
    end.receive([(MAX_HELLO_BYTES + 1).to_bytes(4, "big")])

    assert end.transport.aborted
    assert end.memory.held_bytes == 0


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x06\x00\x12\x00\x00\x00\x00", b"\x00" * 8]
)
def test_garbage_ends_the_connection(garbage: bytes) -> None:
    end = End(introduced=False)
    end.receive([garbage])

    assert end.transport.aborted
    assert end.owner.frames == []


def test_message_behind_an_unanswered_hello_ends_the_connection() -> None:
    end = End(introduced=False)
    end.receive([*encode_frame(FrameKind.HELLO), message(b"early")])

    assert end.transport.aborted
    assert (FrameKind.MESSAGE, b"early") not in end.owner.frames


def test_nothing_is_handed_out_after_the_end() -> None:
    end = End()
    end.receive([message(b"1"), b"\x00\x00\x00\x01\xee", message(b"2")])

    assert end.owner.frames == [(FrameKind.MESSAGE, b"1")]


def test_all_that_is_sent_in_one_turn_leaves_in_one_write() -> None:
    end = End()
    for payload in (b"a", b"b", b"c"):
        end.send(payload)
    assert end.transport.writes == []

    end.loop.turn()
    assert end.transport.writes == [message(b"a") + message(b"b") + message(b"c")]


def test_blocked_stream_queues_up_to_its_bounds_and_goes_on_in_order() -> None:
    end = End()
    end.stream.pause_writing()
    for number in range(CONFIG.queue_max_messages):
        assert end.stream.outbox.has_room
        end.send(b"%d" % number)
    end.loop.turn()

    assert not end.stream.outbox.has_room
    assert end.transport.writes == []
    end.stream.resume_writing()
    assert end.stream.outbox.has_room
    assert b"".join(end.transport.writes) == b"".join(message(b"%d" % number) for number in range(5))


def test_queue_is_bounded_in_bytes_and_still_takes_one_message_of_any_size() -> None:
    end = End()
    end.stream.pause_writing()
    end.send(b"small")
    assert end.stream.outbox.has_room

    end.send(b"x" * CONFIG.max_frame_bytes)
    assert not end.stream.outbox.has_room


def test_flush_stops_where_the_transport_is_full() -> None:
    end = End()
    write = end.transport.write

    def write_and_fill(data: bytes) -> None:
        write(data)
        end.stream.pause_writing()

    cast(Any, end.transport).write = write_and_fill
    end.send(b"x" * 300_000)
    end.send(b"y" * 300_000)
    end.loop.turn()

    assert sum(len(data) for data in end.transport.writes) == 300_005


def test_answering_end_reads_no_more_requests_while_its_answers_are_not_taken() -> None:
    end = End(reads_while_blocked=False)
    end.stream.pause_writing()
    assert not end.transport.reading

    end.stream.resume_writing()
    assert end.transport.reading


def test_answering_end_that_fills_up_again_while_resuming_stays_paused() -> None:
    end = End(reads_while_blocked=False)
    end.stream.pause_writing()
    end.send(b"x")
    cast(Any, end.transport).write = lambda data: end.stream.pause_writing()
    end.stream.resume_writing()

    assert not end.transport.reading


def test_asking_end_reads_on_while_blocked() -> None:
    end = End(reads_while_blocked=True)
    end.stream.pause_writing()

    assert end.transport.reading


def test_silent_connection_is_given_up_though_the_socket_buffer_takes_pings() -> None:
    end = End()
    for _ in range(9):
        end.loop.now_s += 1
        end.send(b"ping")
        end.loop.turn()
        end.stream.abort_if_silent()
    assert not end.transport.aborted

    end.loop.now_s += 1
    end.stream.abort_if_silent()
    assert end.transport.aborted


def test_large_message_that_the_peer_takes_slowly_is_a_sign_of_life() -> None:
    end = End()
    end.send(b"x" * 100_000)
    end.loop.turn()
    for backlog_bytes in range(100_000, 0, -4_000):
        end.transport.backlog_bytes = backlog_bytes
        end.loop.now_s += 1
        end.stream.abort_if_silent()

    assert not end.transport.aborted


def test_what_was_sent_leaves_before_an_end_in_good_order() -> None:
    end = End()
    end.send(b"last words")
    end.stream.end("done")

    assert end.transport.writes == [message(b"last words")]
    assert end.transport.closing
    assert not end.transport.aborted


def test_end_does_not_wait_for_a_peer_that_takes_nothing() -> None:
    end = End()
    end.stream.pause_writing()
    end.stream.end("done")

    assert end.transport.aborted


def test_a_connection_that_has_ended_is_freed_with_its_owner_without_a_collection() -> None:
    end = End()
    stream, owner = weakref.ref(end.stream), weakref.ref(end.owner)
    gc.disable()
    try:
        end.receive([message(b"x")[:-1]])
        end.stream.connection_lost(None)
        assert end.owner.closed == "closed by the other end"
        del end
        assert (stream(), owner()) == (None, None)
    finally:
        gc.enable()


def test_frames_in_parts_of_many_streams_do_not_mix_in_the_memory_that_they_share() -> None:
    memory = ReceiveMemory()
    ends = [End(memory=memory) for _ in range(3)]
    payloads = [bytes([number]) * (300 + number) for number in range(3)]
    frames = [message(payload) for payload in payloads]
    for part in (slice(0, 2), slice(2, 200), slice(200, None)):
        for end, frame in zip(ends, frames, strict=True):
            feed(end.stream, frame[part], 1 << 30)

    assert [end.owner.frames for end in ends] == [[(FrameKind.MESSAGE, payload)] for payload in payloads]
    assert memory.held_bytes == 0


def test_a_stream_that_ends_within_a_frame_leaves_nothing_in_the_shared_memory() -> None:
    memory = ReceiveMemory()
    one, other = End(memory=memory), End(memory=memory)
    feed(one.stream, message(b"x" * 500)[:100], 1 << 30)
    one.stream.connection_lost(None)
    other.receive([message(b"y" * 500)])

    assert other.owner.frames == [(FrameKind.MESSAGE, b"y" * 500)]
    assert memory.occupant is None
    assert memory.held_bytes == 0
