"""What leaves a connection, in which order, and what happens when the peer does not take it."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import pytest

from quorate.kernel.ports import Buffer, FileRegion
from quorate.transport.outbox import (
    COPY_CHUNK_BYTES,
    SENDFILE_MINIMUM_BYTES,
    TURN_BYTES,
    Outbox,
    ReplyPart,
    TransportTurns,
)


class FakeTransport:
    """Keeps what it is given, and tells the outbox to pause above its high-water mark."""

    def __init__(self, pause: Callable[[], None] = lambda: None) -> None:
        self.queued = bytearray()
        self.taken = bytearray()
        self.aborted = False
        self.pause = pause
        self.high_water = 100_000

    def write(self, data: Buffer) -> None:
        self.queued += data
        if len(self.queued) > self.high_water:
            self.pause()

    def writelines(self, buffers: Sequence[Buffer]) -> None:
        self.write(b"".join(buffers))

    def take_all(self) -> None:
        """The peer catches up with all that is queued."""
        self.taken += self.queued
        self.queued.clear()

    def get_write_buffer_size(self) -> int:
        return len(self.queued)

    def is_closing(self) -> bool:
        return self.aborted

    def abort(self) -> None:
        self.aborted = True


class MemoryFile:
    """A disk file with nothing real behind it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, position: int, length: int) -> bytes:
        return self._content[position : position + length]

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return None


class RealFile(MemoryFile):
    def __init__(self, content: bytes, descriptor: int) -> None:
        super().__init__(content)
        self._descriptor = descriptor

    def send_to(self, socket: int, position: int, length: int) -> int | None:
        return os.sendfile(socket, self._descriptor, position, length)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
def real_file(tmp_path: Any) -> Iterator[RealFile]:
    content = os.urandom(3_000_000)
    (tmp_path / "file").write_bytes(content)
    descriptor = os.open(tmp_path / "file", os.O_RDONLY)
    yield RealFile(content, descriptor)
    os.close(descriptor)


def region(file: MemoryFile, position: int, length: int) -> FileRegion:
    return FileRegion(cast(Any, file), position, length)


class FakeRoom:
    """A plain socket whose room the test announces."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.has_room: Callable[[], None] | None = None
        self.turns = 0
        self.has_descriptors = True

    def watch(self, has_room: Callable[[], None]) -> bool:
        if self.has_descriptors:
            self.has_room = has_room
        return self.has_descriptors

    def take_turns(self, goes_on: Callable[[], None]) -> None:
        self.turns += 1
        self.has_room = goes_on

    def unwatch(self) -> None:
        self.has_room = None

    def close(self) -> None:
        self.has_room = None


def outbox_of(transport: FakeTransport, room: FakeRoom | None) -> Outbox:
    outbox = Outbox(cast(Any, transport), cast(Any, room), lambda: None)
    transport.pause = outbox.pause
    return outbox


def drain(
    outbox: Outbox, transport: FakeTransport, room: FakeRoom, theirs: socket.socket, expected_bytes: int
) -> bytes:
    """Read as a peer does until all has come; bytes on the socket come before what the transport still holds."""
    received = bytearray()
    theirs.setblocking(False)
    idle_rounds = 0
    while len(received) < expected_bytes:
        before = len(received)
        try:
            received += theirs.recv(1 << 20)
        except BlockingIOError:
            received += transport.queued
            transport.queued.clear()
            outbox.resume()
            if room.has_room is not None:
                room.has_room()
        idle_rounds = 0 if len(received) > before else idle_rounds + 1
        assert idle_rounds < 3, "nothing more comes"
    return bytes(received)


def test_buffers_and_files_leave_in_order(sockets: tuple[socket.socket, socket.socket], real_file: RealFile) -> None:
    ours, theirs = sockets
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    outbox = outbox_of(transport, room)
    content = real_file.read(0, 3_000_000)
    parts: list[ReplyPart] = [
        b"head",
        region(real_file, 10, 2_000_000),
        b"",
        memoryview(b"middle"),
        region(real_file, 5, 100),
        b"tail",
        region(real_file, 1_000, SENDFILE_MINIMUM_BYTES),
    ]
    expected = b"".join(
        [
            b"head",
            content[10:2_000_010],
            b"middle",
            content[5:105],
            b"tail",
            content[1_000 : 1_000 + SENDFILE_MINIMUM_BYTES],
        ]
    )

    outbox.send(parts)

    assert drain(outbox, transport, room, theirs, len(expected)) == expected
    assert not outbox.is_blocked
    assert room.has_room is None


def test_a_reader_that_does_not_read_holds_back_the_file_and_not_the_memory(
    sockets: tuple[socket.socket, socket.socket], real_file: RealFile
) -> None:
    ours, _ = sockets
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    outbox = outbox_of(transport, room)

    outbox.send([region(real_file, 0, 3_000_000) for _ in range(20)])

    assert outbox.is_blocked
    assert room.has_room is not None
    assert not transport.queued


def test_a_reply_goes_on_where_no_descriptor_is_left_to_watch_the_socket_with(
    sockets: tuple[socket.socket, socket.socket], real_file: RealFile
) -> None:
    ours, theirs = sockets
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    room.has_descriptors = False
    outbox = outbox_of(transport, room)

    outbox.send([region(real_file, 0, 3_000_000)])

    assert drain(outbox, transport, room, theirs, 3_000_000) == real_file.read(0, 3_000_000)
    assert not outbox.is_blocked


def test_a_long_reply_lets_others_have_their_turn(
    sockets: tuple[socket.socket, socket.socket], real_file: RealFile
) -> None:
    ours, theirs = sockets
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    outbox = outbox_of(transport, room)
    sizes = [TURN_BYTES // 2, TURN_BYTES // 2, 2 * TURN_BYTES, 10]

    outbox.send([region(real_file, 0, size) for size in sizes])

    first = theirs.recv(4 << 20)
    assert room.turns == 1
    assert first == real_file.read(0, sizes[0]) * 2
    expected = b"".join(real_file.read(0, size) for size in sizes)
    assert first + drain(outbox, transport, room, theirs, len(expected) - len(first)) == expected
    assert not outbox.is_blocked


def test_a_file_that_is_to_be_encrypted_leaves_a_piece_in_each_turn_of_the_loop() -> None:
    content = os.urandom(5 * COPY_CHUNK_BYTES // 2)
    transport = FakeTransport()
    transport.high_water = 10 * len(content)
    unblocked: list[int] = []

    async def scenario() -> None:
        turns = TransportTurns(asyncio.get_running_loop())
        outbox = Outbox(cast(Any, transport), turns, lambda: unblocked.append(len(transport.queued)))
        outbox.send([b"head", region(MemoryFile(content), 0, len(content)), b"tail"])
        for pieces in (1, 2):
            assert len(transport.queued) == 4 + pieces * COPY_CHUNK_BYTES
            assert outbox.is_blocked
            await asyncio.sleep(0)
        assert not outbox.is_blocked

    asyncio.run(scenario())
    assert transport.queued == b"head" + content + b"tail"
    assert unblocked == [len(transport.queued)]


def test_a_turn_that_comes_while_the_peer_does_not_read_is_taken_later_and_none_after_the_end() -> None:
    content = os.urandom(4 * COPY_CHUNK_BYTES)
    transport = FakeTransport()
    transport.high_water = 10 * len(content)

    async def scenario() -> None:
        outbox = Outbox(cast(Any, transport), TransportTurns(asyncio.get_running_loop()), lambda: None)
        outbox.send([region(MemoryFile(content), 0, len(content))])
        outbox.pause()
        await asyncio.sleep(0)
        assert len(transport.queued) == COPY_CHUNK_BYTES
        outbox.resume()
        assert len(transport.queued) == 2 * COPY_CHUNK_BYTES
        outbox.close()
        await asyncio.sleep(0)
        assert transport.queued == content[: 2 * COPY_CHUNK_BYTES]

    asyncio.run(scenario())


def test_a_file_that_became_shorter_than_promised_ends_the_connection(
    sockets: tuple[socket.socket, socket.socket], real_file: RealFile
) -> None:
    ours, _ = sockets
    transport = FakeTransport()
    outbox = outbox_of(transport, FakeRoom(ours.fileno()))
    outbox.send([region(real_file, 3_000_000, SENDFILE_MINIMUM_BYTES)])
    assert transport.aborted
    assert not outbox.is_blocked


def test_without_a_plain_socket_everything_goes_through_the_transport() -> None:
    transport = FakeTransport()
    outbox = outbox_of(transport, None)
    file = MemoryFile(bytes(range(256)) * 1000)

    outbox.send([b"head", region(file, 0, 200_000), b"tail"])
    while outbox.is_blocked:
        transport.take_all()
        outbox.resume()
    transport.take_all()

    assert bytes(transport.taken) == b"head" + file.read(0, 200_000) + b"tail"


def test_a_file_shorter_than_promised_ends_the_connection_rather_than_the_frame() -> None:
    transport = FakeTransport()
    outbox = outbox_of(transport, None)
    outbox.send([region(MemoryFile(b"short"), 0, SENDFILE_MINIMUM_BYTES)])
    assert transport.aborted


def test_more_buffers_than_one_gathered_write_takes(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    outbox = outbox_of(transport, room)
    outbox.send([b"%04d" % number for number in range(5_000)])
    assert drain(outbox, transport, room, theirs, 20_000) == b"".join(b"%04d" % number for number in range(5_000))


def test_a_broken_connection_is_aborted_and_forgotten(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    theirs.close()
    transport = FakeTransport()
    room = FakeRoom(ours.fileno())
    outbox = outbox_of(transport, room)
    outbox.send([b"into the void"])
    assert transport.aborted
    assert not outbox.is_blocked
