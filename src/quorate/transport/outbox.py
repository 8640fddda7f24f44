"""The sending side of a connection: replies leave in order, with as few system calls and copies as can be.

Bytes go straight to the socket while the transport has nothing queued, file regions by ``sendfile``, which goes on when
the socket has room again. Bytes that the socket does not take at once are handed to the transport, whose water marks
then hold the rest back. Where there is no plain socket to write to (TLS, a simulated network), everything goes through
the transport; files by TLS a piece in each turn of the loop, as a piece is encrypted there and then.
"""

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from quorate.kernel.ports import Buffer, FileRegion


class TransportTurns:
    """Of a connection that writes through its transport alone: nothing tells of room but the transport."""

    #: Of the plain socket, where there is one.
    descriptor: int | None = None

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._turn: asyncio.Handle | None = None

    def watch(self, has_room: Callable[[], None]) -> bool:  # noqa: ARG002
        return False

    def take_turns(self, goes_on: Callable[[], None]) -> None:
        """Call after whatever else is due now."""
        self._turn = self._loop.call_soon(goes_on)

    def unwatch(self) -> None:
        """Nothing is watched."""

    def close(self) -> None:
        if self._turn is not None:
            self._turn.cancel()


class SocketRoom(TransportTurns):
    """A plain socket beside the transport that owns it: written to directly, and watched for room.

    Event loops refuse to watch a descriptor that belongs to a transport, so a duplicate is watched; it exists only
    while it is watched, so that a connection needs one descriptor otherwise.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, send_buffer_bytes: int) -> None:
        super().__init__(loop)
        #: Of the transport: valid until the connection is lost.
        self.descriptor: int = descriptor
        self._watched: int | None = None
        bound_send_buffer(descriptor, send_buffer_bytes)

    def watch(self, has_room: Callable[[], None]) -> bool:
        """Call whenever there is room, until ``unwatch``. A long reply fills the socket many times under one watch.

        False where there is no descriptor left to watch with.
        """
        if self._watched is None:
            try:
                self._watched = os.dup(self.descriptor)
            except OSError:
                return False
            self._loop.add_writer(self._watched, has_room)
        return True

    def take_turns(self, goes_on: Callable[[], None]) -> None:
        """Who watches is called then anyway."""
        if self._watched is None:
            super().take_turns(goes_on)

    def unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = None

    def close(self) -> None:
        self.unwatch()
        super().close()


def bound_send_buffer(descriptor: int, size_bytes: int, times: int = 1) -> None:
    """Keeps a reply from running far ahead of its reader; -1 leaves it to the system, which gives megabytes."""
    if size_bytes == -1:
        return
    borrowed = socket.socket(fileno=descriptor)
    borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, times * size_bytes)
    borrowed.detach()


ReplyPart = Buffer | FileRegion
Reply = Sequence[ReplyPart]

#: Below this size one read and one gathered write are cheaper than a system call of their own.
SENDFILE_MINIMUM_BYTES = 32 * 1024
#: How much of the files is sent before other connections have their turn: fair to them, and measured to be faster.
TURN_BYTES = 192 * 1024
#: How much of a file is put into memory at a time when the socket's buffer is full, or to be encrypted.
COPY_CHUNK_BYTES = 256 * 1024
#: A send buffer that one encrypted piece fills has the loop wait for room in the middle of each: a fifth slower.
TLS_SEND_BUFFERS = 2
#: Linux takes at most this many buffers in one gathered write.
_MAX_BUFFERS = 1024


def _nobody_waits() -> None:
    """The connection is closed, and is not referred to any more."""


class Outbox:
    def __init__(
        self, transport: asyncio.Transport, room: TransportTurns | None, unblocked: Callable[[], None]
    ) -> None:
        self._transport = transport
        self._room = room
        self._unblocked = unblocked
        self._waits_for_room = False
        self._parts: deque[ReplyPart] = deque()
        self._paused = False

    @property
    def is_blocked(self) -> bool:
        """Whether the peer takes less than it is being sent."""
        return self._paused or bool(self._parts)

    @property
    def remaining_bytes(self) -> int:
        """What the socket has not taken yet."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

    @property
    def held_bytes(self) -> int:
        """The same, without what lies in files and not in memory."""
        in_memory = (len(part) for part in self._parts if not isinstance(part, FileRegion))
        return self._transport.get_write_buffer_size() + sum(in_memory)

    def send(self, parts: Sequence[ReplyPart]) -> bool:
        """False where the peer takes less than that."""
        if not self.is_blocked and len(parts) <= _MAX_BUFFERS and FileRegion not in map(type, parts):
            self._send_buffers(cast(Sequence[Buffer], parts))  # Small answers: there is nothing to sort out.
            return not self._paused
        self._parts.extend(parts)
        if not self._paused:
            self._pump()
        return not self.is_blocked

    def close(self) -> None:
        self._parts.clear()
        self._unblocked = _nobody_waits
        if self._room is not None:
            self._room.close()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._pump()

    def _pump(self) -> None:
        parts = self._parts
        left_bytes = TURN_BYTES
        while parts and not self._paused and not self._waits_for_room:
            head = parts[0]
            if isinstance(head, FileRegion) and len(head) >= SENDFILE_MINIMUM_BYTES:
                if left_bytes <= 0 and self._room is not None:
                    self._waits_for_room = True
                    self._room.take_turns(self._has_room)
                else:
                    left_bytes -= self._send_file(head)
            else:
                self._send_buffers(self._gather())

    def _gather(self) -> list[Buffer]:
        """Take the buffers, and the file regions too small for ``sendfile``, up to the next large region."""
        buffers: list[Buffer] = []
        parts = self._parts
        while parts and len(buffers) < _MAX_BUFFERS:
            head = parts[0]
            if isinstance(head, FileRegion):
                if len(head) >= SENDFILE_MINIMUM_BYTES:
                    break
                content = _read(head, len(head))
                if len(content) < len(head):
                    # The file is shorter than promised: the frame cannot be completed.
                    self._give_up()
                    return []
                buffers.append(content)
            else:
                buffers.append(head)
            parts.popleft()
        return buffers

    def _send_buffers(self, buffers: Sequence[Buffer]) -> None:
        descriptor = self._usable_socket()
        if descriptor is not None:
            try:
                sent = os.writev(descriptor, buffers)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._give_up()
                return
            if sent == sum(map(len, buffers)):
                return
            buffers = _after(buffers, sent)
        self._transport.writelines(buffers)

    def _send_file(self, region: FileRegion) -> int:
        """How much was sent."""
        descriptor = self._usable_socket()
        wanted = min(len(region), TURN_BYTES)
        sent: int | None = None
        if descriptor is not None:
            try:
                sent = region.file.send_to(descriptor, region.position, wanted)
                if sent == 0:
                    # The file is shorter than promised: the frame cannot be completed.
                    self._give_up()
                    return 0
            except BlockingIOError:
                sent = 0
            except OSError:
                self._give_up()
                return 0
        if self._room is not None and sent is not None:
            region.advance(sent)
            self._drop_if_empty(region)
            if sent == wanted:
                return sent
            # The socket is full: another try now would only be told so.
            self._waits_for_room = self._room.watch(self._has_room)
            if self._waits_for_room or not len(region):
                return sent
        # The transport is in use, or must be: queue one chunk and let it say when to go on.
        chunk = _read(region, COPY_CHUNK_BYTES)
        if not chunk:
            self._give_up()
            return 0
        region.advance(len(chunk))
        self._drop_if_empty(region)
        self._transport.write(chunk)
        return len(chunk)

    def _has_room(self) -> None:
        self._waits_for_room = False
        self._pump()
        if self._room is not None and not self._waits_for_room:
            self._room.unwatch()
            if not self._parts:
                self._unblocked()

    def _give_up(self) -> None:
        self._transport.abort()
        self._parts.clear()

    def _usable_socket(self) -> int | None:
        """The socket's descriptor, while writing past the transport keeps the order."""
        if self._room is None or self._transport.is_closing() or self._transport.get_write_buffer_size() != 0:
            return None
        return self._room.descriptor

    def _drop_if_empty(self, region: FileRegion) -> None:
        if not len(region):
            self._parts.popleft()


def _read(region: FileRegion, length: int) -> bytes:
    """Nothing where the file cannot be read."""
    try:
        return region.read(length)
    except OSError:
        return b""


def _after(buffers: Sequence[Buffer], sent: int) -> Sequence[Buffer]:
    """What is left of the buffers when their first ``sent`` bytes are gone."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
