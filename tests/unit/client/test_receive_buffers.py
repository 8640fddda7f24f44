"""Memory that is used again."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.client.connections.connection import MIN_BUFFER_BYTES, ReceiveBuffers


def test_a_buffer_that_was_given_back_is_used_again() -> None:
    buffers = ReceiveBuffers()
    first = buffers.take(1_000_000)
    assert buffers.take(1_000_000) is not first
    buffers.give_back(first)
    assert buffers.take(900_000) is first


def test_the_smallest_buffer_that_fits_is_taken() -> None:
    buffers = ReceiveBuffers()
    small, large = buffers.take(MIN_BUFFER_BYTES), buffers.take(MIN_BUFFER_BYTES * 8)
    buffers.give_back(large)
    buffers.give_back(small)
    assert buffers.take(10) is small
    assert buffers.take(10) is large


def test_no_more_is_kept_than_is_worth_keeping() -> None:
    buffers = ReceiveBuffers(kept_bytes=MIN_BUFFER_BYTES * 2)
    taken = [buffers.take(1) for _ in range(5)]
    for buffer in taken:
        buffers.give_back(buffer)
    again = [buffers.take(1) for _ in range(5)]
    assert sum(any(buffer is old for old in taken) for buffer in again) == 2


@given(st.lists(st.integers(0, 1 << 20), max_size=20))
def test_a_buffer_always_holds_what_was_asked_for(sizes: list[int]) -> None:
    buffers = ReceiveBuffers(kept_bytes=1 << 20)
    for number, size in enumerate(sizes):
        buffer = buffers.take(size)
        assert len(buffer) >= size
        if number % 2:
            buffers.give_back(buffer)
