"""Frames cut from what arrives, however it is split."""

import random
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.transport.receive_buffer import FrameTooLarge, ReceiveBuffer


def framed(payload: bytes) -> bytes:
    return pack(">i", len(payload)) + payload


def feed(buffer: ReceiveBuffer, data: bytes, largest_read: int) -> list[bytes]:
    """Deliver the bytes in reads of at most this size; the frames that come out, in order."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        room = buffer.writable()
        assert len(room) > 0
        count = min(len(room), largest_read, len(data) - position)
        room[:count] = data[position : position + count]
        buffer.received(count)
        position += count
        while (frame := buffer.next_frame()) is not None:
            frames.append(bytes(frame))
        buffer.settle()
    return frames


@given(
    st.lists(st.binary(max_size=40) | st.integers(0, 300_000).map(lambda size: random.Random(size).randbytes(size))),
    st.integers(1, 200_000),
)
def test_frames_come_out_whole_and_in_order_however_the_reads_fall(payloads: list[bytes], largest_read: int) -> None:
    largest_read = max(largest_read, sum(map(len, payloads)) // 500)  # A byte at a time only where that is quick.
    data = b"".join(framed(payload) for payload in payloads)
    assert feed(ReceiveBuffer(1_000_000), data, largest_read) == payloads


def test_a_frame_may_be_patched_in_place() -> None:
    buffer = ReceiveBuffer(100)
    room = buffer.writable()
    room[:8] = framed(b"abcd")
    buffer.received(8)
    frame = buffer.next_frame()
    assert frame is not None
    frame[0:1] = b"X"
    assert bytes(frame) == b"Xbcd"


@pytest.mark.parametrize("length", [-1, -(2**31), 101, 2**31 - 1])
def test_a_frame_beyond_the_limit_is_refused_before_anything_is_allocated(length: int) -> None:
    buffer = ReceiveBuffer(100)
    room = buffer.writable()
    room[:4] = pack(">i", length)
    buffer.received(4)
    with pytest.raises(FrameTooLarge):
        buffer.next_frame()


def test_an_incomplete_large_frame_is_read_alone_so_that_nothing_large_is_moved() -> None:
    buffer = ReceiveBuffer(10_000_000)
    room = buffer.writable()
    room[:4] = pack(">i", 1_000_000)
    buffer.received(4)
    assert buffer.next_frame() is None
    assert 300_000 < len(buffer.writable()) <= 1_000_000


def test_large_frames_of_one_size_are_read_one_by_one_with_nothing_of_the_next() -> None:
    buffer = ReceiveBuffer(10_000_000)
    frame = framed(bytes(1_000_000))
    feed(buffer, frame, 100_000)
    assert len(buffer.writable()) == len(frame)


def test_a_large_frame_of_which_little_has_come_goes_where_the_one_before_lay() -> None:
    buffer = ReceiveBuffer(10_000_000)
    frame = framed(bytes(1_000_000))
    assert len(feed(buffer, frame, 400_000)) == 1
    before = buffer.writable()
    assert feed(buffer, frame[:10_000], 10_000) == []  # As much as was left of what TLS read at once.
    rest = buffer.writable()
    assert rest.obj is before.obj
    assert len(rest) == len(frame) - 10_000


def test_one_read_takes_several_frames_once_a_sizable_one_was_seen() -> None:
    buffer = ReceiveBuffer(1_000_000)
    frame = framed(bytes(65_536))
    feed(buffer, frame, 100_000)
    room = buffer.writable()
    assert len(room) >= 3 * len(frame)
    room[: 3 * len(frame)] = 3 * frame
    buffer.received(3 * len(frame))
    assert [len(buffer.next_frame() or b"") for _ in range(4)] == [65_536, 65_536, 65_536, 0]


def test_a_frame_that_came_in_part_behind_others_is_completed_in_place() -> None:
    buffer = ReceiveBuffer(1_000_000)
    frame = framed(bytes(65_536))
    feed(buffer, frame, 100_000)
    room = buffer.writable()
    room[: len(frame) + 30_000] = frame + frame[:30_000]
    buffer.received(len(frame) + 30_000)
    first = buffer.next_frame()
    assert first is not None
    assert buffer.next_frame() is None
    rest = buffer.writable()
    rest[: len(frame) - 30_000] = frame[30_000:]
    assert room[len(frame) : 2 * len(frame)] == frame


def test_the_buffer_of_one_huge_frame_is_let_go() -> None:
    buffer = ReceiveBuffer(100_000_000)
    assert feed(buffer, framed(bytes(20_000_000)), 20_000_000) == [bytes(20_000_000)]
    assert len(buffer.writable()) < 1_000_000
