"""The limit on what all connections hold of requests that came in part: who reads on, who waits, and for whom."""

import random
from struct import pack

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.transport.receive_buffer import ReceiveBuffer
from quorate.transport.receive_memory import READ_BYTES, SHORT_READ_BYTES, ReceiveMemory

LARGEST = 100_000_000
LIMIT = 1_000_000


class Sender:
    """A connection and the client behind it, who sends as much as is read."""

    def __init__(self, memory: ReceiveMemory, *sizes: int) -> None:
        self.buffer = ReceiveBuffer(LARGEST, memory, self._on_memory)
        self.expected = [bytes([size % 251]) * size for size in sizes]
        self.unsent = bytearray().join(pack(">i", len(each)) + each for each in self.expected)
        self.received: list[bytes] = []
        self.is_reading = True
        self.told = 0

    def _on_memory(self) -> None:
        self.told += 1
        self.is_reading = self.buffer.may_read()

    @property
    def is_done(self) -> bool:
        return self.received == self.expected

    def send(self, most: int = LARGEST) -> int:
        """One read event, unless the connection is not read from; how many bytes it took."""
        if not self.is_reading:
            return 0
        room = self.buffer.writable()
        count = min(len(room), most, len(self.unsent))
        if not count:
            return 0
        room[:count] = self.unsent[:count]
        del self.unsent[:count]
        self.buffer.received(count)
        del room
        while (frame := self.buffer.next_frame()) is not None:
            self.received.append(bytes(frame))
        self.buffer.settle()
        self.is_reading = self.buffer.may_read()
        return count

    def send_all(self) -> None:
        while self.send():
            pass


def announcing(memory: ReceiveMemory, announced_bytes: int, sent_bytes: int) -> Sender:
    """One whose client sends the beginning of a frame, and no more."""
    sender = Sender(memory)
    sender.unsent = bytearray(pack(">i", announced_bytes) + bytes(sent_bytes))
    return sender


def test_announced_frames_take_no_more_memory_than_has_come_of_them() -> None:
    memory = ReceiveMemory(LIMIT)
    senders = [announcing(memory, LARGEST, 2) for _ in range(30)]
    for sender in senders:
        sender.send(5)
    assert memory.held_bytes <= 30 * 5
    for sender in senders:
        sender.send(1)
    assert memory.held_bytes <= 30 * 2048
    for sender in senders:
        sender.buffer.close()
    assert memory.held_bytes == 0


def test_connections_that_sent_whole_frames_hold_nothing() -> None:
    memory = ReceiveMemory(LIMIT)
    senders = [Sender(memory, 100, 65_536, 10) for _ in range(5)]
    for sender in senders:
        sender.send_all()
        assert sender.is_done
    assert memory.held_bytes == 0


def test_a_frame_larger_than_the_whole_limit_gets_through_alone() -> None:
    memory = ReceiveMemory(LIMIT)
    sender = Sender(memory, 20 * LIMIT)
    sender.send_all()
    assert sender.is_done
    assert memory.held_bytes == 0


def test_of_many_frames_beyond_the_limit_one_after_the_other_gets_through() -> None:
    memory = ReceiveMemory(LIMIT)
    senders = [Sender(memory, 5 * LIMIT) for _ in range(8)]
    most = 0
    while not all(sender.is_done for sender in senders):
        assert sum(sender.send(100_000) for sender in senders), "nobody can go on"
        most = max(most, memory.held_bytes)
    assert LIMIT < most < LIMIT + 5 * LIMIT + len(senders) * 100_000
    assert memory.held_bytes <= LIMIT


def test_who_stalls_holds_up_the_others_until_its_connection_ends() -> None:
    memory = ReceiveMemory(LIMIT)
    stalled = Sender(memory, 5 * LIMIT)
    while memory.held_bytes < LIMIT:
        stalled.send()
    other = Sender(memory, 300_000)
    other.send_all()
    assert not other.is_reading
    assert memory.has_waiting
    stalled.buffer.close()
    assert other.told
    other.send_all()
    assert other.is_done


def test_requests_that_come_whole_are_served_while_memory_is_short() -> None:
    memory = ReceiveMemory(LIMIT)
    stalled = Sender(memory, 5 * LIMIT)
    while memory.held_bytes < LIMIT:
        stalled.send()
    small = Sender(memory, *[SHORT_READ_BYTES - 4] * 10)
    small.send_all()
    assert small.is_done


def test_a_read_while_memory_is_short_adds_little_however_many_read() -> None:
    memory = ReceiveMemory(LIMIT)
    senders = [announcing(memory, 5 * LIMIT, 100_000) for _ in range(500)]
    for _ in range(10):
        for sender in senders:
            sender.send()
    assert memory.held_bytes < LIMIT + 100_000 + 500 * (SHORT_READ_BYTES + 8)


def test_one_that_has_to_wait_for_something_else_lets_the_next_pass() -> None:
    memory = ReceiveMemory(LIMIT)
    first, second = Sender(memory, 5 * LIMIT), Sender(memory, 300_000)
    while memory.favoured is not first.buffer:
        assert first.send()
    second.send_all()
    assert not second.is_reading
    first.buffer.stop_waiting()
    assert second.is_reading
    second.send_all()
    assert second.is_done


def test_memory_kept_for_the_next_large_frame_is_given_back_to_whoever_needs_it() -> None:
    memory = ReceiveMemory(3 * LIMIT)
    senders = [Sender(memory, 800_000) for _ in range(10)]
    for sender in senders:
        sender.send_all()
        assert sender.is_done
        assert memory.held_bytes < 4 * LIMIT
    assert memory.held_bytes > 800_000
    memory.shrink()
    memory.shrink()
    assert memory.held_bytes == 0


def test_memory_in_use_is_not_taken_back() -> None:
    memory = ReceiveMemory(LIMIT)
    sender = Sender(memory, 800_000, 700_000)
    while len(sender.received) < 1:
        sender.send()
    sender.send(300_000)
    for _ in range(3):
        memory.shrink()
    sender.send_all()
    assert sender.is_done


def test_large_frames_in_small_pieces_are_not_moved_again_and_again() -> None:
    """What is copied is a small multiple of what comes: each move at least doubles the memory."""
    memory = ReceiveMemory(LARGEST)
    sender = Sender(memory, 1_000_000)
    moves, last = 0, None
    while sender.send(1000):
        view = sender.buffer._view
        moves += view is not last
        last = view
    assert sender.is_done
    assert moves < 20


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from([0, 1, 3, 500, 5_000, 70_000, 130_000, 400_000, 3_000_000]), max_size=5)),
    st.integers(0, 2**32),
)
def test_everything_that_is_sent_comes_out_whatever_the_memory(sizes: list[list[int]], seed: int) -> None:
    generator = random.Random(seed)
    memory = ReceiveMemory(generator.choice([-1, 0, 1000, 200_000, LIMIT]))
    senders = [Sender(memory, *each) for each in sizes]
    unfinished = [sender for sender in senders if not sender.is_done]
    while unfinished:
        sent = 0
        for sender in unfinished:
            sent += sender.send(generator.choice([1, 1000, READ_BYTES, LARGEST]))
        unfinished = [sender for sender in unfinished if not sender.is_done]
        assert sent or not unfinished, "nobody can go on"
    for sender in senders:
        sender.buffer.close()
    assert memory.held_bytes == 0
