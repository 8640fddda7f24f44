"""What is handed to the transport: all bytes in order, small buffers together, large ones uncopied."""

import asyncio
from typing import cast

from quorate.transport.peers.config import PeerConfig
from quorate.transport.peers.stream import PeerOutbox


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def is_closing(self) -> bool:
        return False


async def written(*frames: tuple[bytes, ...]) -> list[bytes]:
    transport = Transport()
    outbox = PeerOutbox(asyncio.get_running_loop(), cast(asyncio.WriteTransport, transport), PeerConfig())
    for frame in frames:
        outbox.put(frame)
    await asyncio.sleep(0)
    assert outbox.written_bytes == sum(map(len, transport.written))
    return transport.written


def test_the_frames_of_a_turn_leave_in_one_write() -> None:
    assert asyncio.run(written((b"a", b"b"), (b"c",))) == [b"abc"]


def test_a_large_buffer_is_written_as_it_is_between_its_neighbours() -> None:
    large = bytes(100_000)
    first, second, third = asyncio.run(written((b"head", large, b"tail"), (b"next",)))
    assert (first, third) == (b"head", b"tailnext")
    assert second is large
