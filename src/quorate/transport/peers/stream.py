"""One TCP connection between two nodes, seen from either end: frames in, frames out, and signs of life.

What is to be sent waits in a ``PeerOutbox``: in order, bounded, and written once in a turn of the loop. Event loops
switch off Nagle's algorithm on every TCP connection by themselves, so nothing is done about it here.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from quorate.kernel.ports import Buffer
from quorate.transport.peers.config import PeerConfig
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import FRAME_OVERHEAD_BYTES, FrameKind, split_kind
from quorate.transport.peers.hello import MAX_HELLO_BYTES
from quorate.transport.receive_buffer import FrameTooLarge, ReceiveBuffer
from quorate.transport.receive_memory import ReceiveMemory

#: A turn's frames leave in one write up to here; beyond it the transport's water marks are asked in between.
_WRITE_BYTES = 256 * 1024
#: From here on a buffer is written by itself: copying it costs more than a write.
_LARGE_BYTES = 32 * 1024


#: The first two bytes of a handshake and of an alert: no frame is that long.
_TLS_BEGINS = (0x1603, 0x1503)
_SPEAKS_TLS = "it speaks TLS, and this node has no peer_certificate_file: all nodes need one, or none"


class PeerOutbox:
    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, config: PeerConfig) -> None:
        self._loop = loop
        self._transport = transport
        self._config = config
        self._frames: deque[tuple[int, Sequence[Buffer]]] = deque()
        self._queued_bytes = 0
        #: Whether the other end takes less than it is being sent.
        self.is_paused = False
        self._flush_planned = False
        #: All that was ever handed to the transport.
        self.written_bytes = 0

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < self._config.queue_max_bytes and len(self._frames) < self._config.queue_max_messages

    def put(self, frame: Sequence[Buffer]) -> None:
        """Queue a frame; whoever may be told "no" asks ``has_room`` first."""
        size = sum(map(len, frame))
        self._frames.append((size, frame))
        self._queued_bytes += size
        if not self._flush_planned and not self.is_paused:
            self._flush_planned = True
            self._loop.call_soon(self._flush_turn)

    def flush(self) -> None:
        while self._frames and not self.is_paused and not self._transport.is_closing():
            # Not writelines: before Python 3.12.9 and 3.13.2 it lets the transport's buffer grow without a limit.
            buffers, size = self._take()
            if size < _LARGE_BYTES:
                self._transport.write(b"".join(buffers))
            else:
                for piece in _pieces(buffers):
                    self._transport.write(piece)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.flush()

    def close(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    def _flush_turn(self) -> None:
        self._flush_planned = False
        self.flush()

    def _take(self) -> tuple[list[Buffer], int]:
        buffers: list[Buffer] = []
        taken = 0
        while self._frames and (not taken or taken + self._frames[0][0] <= _WRITE_BYTES):
            size, frame = self._frames.popleft()
            buffers.extend(frame)
            taken += size
        self._queued_bytes -= taken
        self.written_bytes += taken
        return buffers, taken


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes: small buffers joined, large ones as they are."""
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _LARGE_BYTES:
            small.append(buffer)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        yield buffer
    if small:
        yield b"".join(small)


class StreamOwner(Protocol):
    def stream_opened(self, stream: "PeerStream") -> None: ...

    def frame_received(self, kind: FrameKind, body: memoryview) -> None:
        """Take a frame, valid until this call returns; a ``PeerProtocolError`` ends the connection."""
        ...

    def protocol_broken(self, reason: str) -> None:
        """The other end has sent what no peer sends. The connection ends."""
        ...

    def stream_closed(self, reason: str) -> None: ...


class _Nobody:
    """Owns a stream that has closed."""

    def stream_opened(self, stream: "PeerStream") -> None: ...

    def frame_received(self, kind: FrameKind, body: memoryview) -> None: ...

    def protocol_broken(self, reason: str) -> None: ...

    def stream_closed(self, reason: str) -> None: ...


_NOBODY = _Nobody()


class PeerStream(asyncio.BufferedProtocol):
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: PeerConfig,
        owner: StreamOwner,
        memory: ReceiveMemory,
        *,
        reads_while_blocked: bool,
        first_frame_bytes: int = MAX_HELLO_BYTES,
    ) -> None:
        """An end that answers requests must not read more of them while its answers are not taken.

        Frames are no larger than the first one may be until the other end is admitted. The memory is what all
        connections of the node read into.
        """
        self._loop = loop
        self._config = config
        self._owner: StreamOwner = owner
        self._reads_while_blocked = reads_while_blocked
        self._memory = memory
        self._incoming = ReceiveBuffer(first_frame_bytes, memory)
        self._reading_paused = False
        self._unread_bytes = 0  # Received, and not yet handed out as a frame.
        self._new_limit: int | None = None  # For the frames after the one that is being received.
        self._close_reason: str | None = None
        self._last_alive = loop.time()
        self._backlog_bytes = 0  # Of the transport, when last looked at,
        self._taken_bytes = 0  # and what the network had taken by then.
        self.remote_host = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are of no common class.
        remote = transport.get_extra_info("peername")
        self.remote_host = str(remote[0]) if remote else ""
        self.outbox = PeerOutbox(self._loop, self._transport, self._config)
        self._owner.stream_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.outbox.close()
        self._incoming.close()
        # The owner knows the stream: without this circle both are freed at once.
        owner, self._owner = self._owner, _NOBODY
        owner.stream_closed(self._close_reason or (str(exc) if exc else "closed by the other end"))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer knows better
        return self._incoming.writable()

    def buffer_updated(self, nbytes: int) -> None:
        self._last_alive = self._loop.time()
        self._unread_bytes += nbytes
        self._incoming.received(nbytes)
        try:
            while self._close_reason is None and (frame := self._incoming.next_frame()) is not None:
                self._unread_bytes -= 4 + len(frame)
                self._owner.frame_received(*split_kind(frame))
            self._incoming.settle()
            if self._new_limit is not None:
                self._change_limit()
        except FrameTooLarge as error:
            self.give_up(_SPEAKS_TLS if error.length >> 16 in _TLS_BEGINS else str(error))
        except PeerProtocolError as error:
            self.give_up(str(error))

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.outbox.pause()
        self._update_reading()

    def resume_writing(self) -> None:
        self.outbox.resume()
        self._update_reading()

    def admit(self, max_frame_bytes: int) -> None:
        """The other end has introduced itself: take frames of this size from now on."""
        if self._unread_bytes:
            raise PeerProtocolError("sent more before it was answered")
        self._take_frames_of(max_frame_bytes)

    def change_limit(self, max_frame_bytes: int) -> None:
        """Take frames of another size, as soon as nothing of an earlier one is left."""
        self._new_limit = max_frame_bytes
        self._change_limit()

    def send(self, frame: Sequence[Buffer]) -> None:
        self.outbox.put(frame)

    def end(self, reason: str) -> None:
        """Close once what was sent before has left, unless the other end does not take it."""
        if self._close_reason is not None:
            return
        self._close_reason = reason
        self.outbox.flush()
        if self.outbox.is_paused:
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self, reason: str) -> None:
        self._close_reason = self._close_reason or reason
        self._transport.abort()

    def give_up(self, reason: str) -> None:
        """The other end is no peer, or a broken one."""
        if self._close_reason is None:
            self._owner.protocol_broken(reason)
            self.abort(reason)

    def abort_if_silent(self) -> None:
        """Give up where nothing came for too long, unless the other end is seen to take what it is sent."""
        now = self._loop.time()
        backlog_bytes = self._transport.get_write_buffer_size()
        taken_bytes = self.outbox.written_bytes - backlog_bytes
        if self._backlog_bytes and taken_bytes > self._taken_bytes:
            # Only with a backlog: what goes into an empty socket buffer says nothing about the other end.
            self._last_alive = now
        self._backlog_bytes, self._taken_bytes = backlog_bytes, taken_bytes
        if (now - self._last_alive) * 1000 >= self._config.silence_timeout_ms:
            self.abort(f"nothing heard for {self._config.silence_timeout_ms} ms")

    def _change_limit(self) -> None:
        if self._new_limit is not None and self._incoming.is_empty:
            self._take_frames_of(self._new_limit)
            self._new_limit = None

    def _take_frames_of(self, max_frame_bytes: int) -> None:
        self._incoming.close()
        self._incoming = ReceiveBuffer(max_frame_bytes + FRAME_OVERHEAD_BYTES, self._memory)

    def _update_reading(self) -> None:
        # Writing on may have filled the transport again: ask for the state as it is now.
        pause = self.outbox.is_paused and not self._reads_while_blocked
        if pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()
