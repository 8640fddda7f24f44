"""One client connection: frames go to a handler, replies come back in the order of their requests.

The handler may answer at once, later (a future), or not at all. Whatever finishes first, replies wait their turn, and
all that became ready during one read event leaves in one write. Reading stops while the peer does not take its replies
or has too many requests under way: that is the back-pressure. It also stops while the connection is muted, or held by a
request that has to be done with before the next one is begun.
"""

import asyncio
import os
from asyncio import Future
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

import msgspec

from quorate.transport.outbox import (
    TLS_SEND_BUFFERS,
    Outbox,
    Reply,
    ReplyPart,
    SocketRoom,
    TransportTurns,
    bound_send_buffer,
)
from quorate.transport.receive_buffer import FrameTooLarge, ReceiveBuffer
from quorate.transport.receive_memory import ReceiveMemory


class CloseConnection(Exception):
    """Raised by a frame handler when no reply can help: the connection ends, after the replies before it."""


class FrameHandler(Protocol):
    def __call__(self, frame: memoryview) -> "Reply | Future[Reply | None] | None":
        """Serve a frame. It may be changed in place, and is only valid until this call returns."""
        ...


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    max_frame_bytes: int = 100 * 1024 * 1024
    max_requests_in_flight: int = 128
    #: Of those whose answers may be large, and lie in memory.
    max_bulky_in_flight: int = 4
    #: Of the socket, twice as much with TLS; -1 leaves it to the system.
    send_buffer_bytes: int = 262_144


class RequestDeadline(msgspec.Struct, frozen=True, kw_only=True):
    """How long a request may take from its first byte to its last: a time, and more for what has come of it."""

    timeout_ms: int = 30_000
    #: Who is slower than this on average has no better excuse than one that sends nothing.
    min_bytes_per_second: int = 16 * 1024
    #: How much less time there is while others wait for memory.
    hurry: int = 10

    def has_passed(self, elapsed_s: float, received_bytes: int, *, hurried: bool) -> bool:
        allowed_s = self.timeout_ms / 1000 + received_bytes / self.min_bytes_per_second
        return elapsed_s > (allowed_s / self.hurry if hurried else allowed_s)


class ConnectionObserver(Protocol):
    """The server that a connection belongs to."""

    def connection_opened(self, connection: "ServerConnection") -> None: ...

    def connection_closed(self, connection: "ServerConnection", reason: str | None) -> None: ...

    def has_to_look(self) -> None:
        """A request has come in part, or an answer is not taken: this must not last too long."""
        ...


def _serve_nothing(frame: memoryview) -> None:
    """Of a connection that is lost."""


class ServerConnection(asyncio.BufferedProtocol):
    def __init__(
        self,
        observer: ConnectionObserver,
        open_handler: "Callable[[ServerConnection], FrameHandler]",
        limits: ConnectionLimits,
        now: Callable[[], float],
        memory: ReceiveMemory,
    ) -> None:
        """``open_handler`` may raise ``CloseConnection``: then the connection ends, and nothing of it is served."""
        self._observer = observer
        self._open_handler = open_handler
        self._limits = limits
        self._now = now
        self._incoming = ReceiveBuffer(limits.max_frame_bytes, memory, self._update_reading)
        #: When the first byte of a request came of which others are still to come, less what it was not read for.
        self._begun_at: float | None = None
        #: Replies that wait for an earlier one, or for themselves to be done.
        self._pending: deque[Future[Reply | None]] = deque()
        self._ready: list[ReplyPart] = []
        self._bulky: set[Future[Reply | None]] = set()
        self._remaining_bytes = 0  # Of the answers, when last looked at,
        self._taken_at = now()  # and when it was seen that the peer takes them.
        self._reading_paused = False
        self._paused_at = 0.0
        self._in_read_event = False
        self._ending = False
        self._close_reason: str | None = None
        self._muted_until = 0.0
        self._unmute_timer: asyncio.TimerHandle | None = None
        self._holds = 0
        self.last_active = self.opened_at = now()
        self.is_open = False
        #: Whether it has not shown yet who it is, and is to.
        self.is_stranger = False
        self.peer_host = ""

    @property
    def is_quiet(self) -> bool:
        """Whether the peer is owed nothing, be it an answer or a hearing."""
        return not self._pending and not self._outbox.is_blocked and self._unmute_timer is None

    def unread_fileno(self, since: float) -> int | None:
        """Of the socket, if it has not been read from since then: nobody tells that the peer has gone."""
        if self._reading_paused and self._paused_at <= since and not self._transport.is_closing():
            return self._fileno
        return None

    def peer_certificate(self) -> bytes | None:
        """What the client has shown in the handshake and OpenSSL has accepted, in DER; None without one."""
        tls = self._transport.get_extra_info("ssl_object")
        return None if tls is None else cast("bytes | None", tls.getpeercert(binary_form=True))

    @property
    def missing_bytes(self) -> int:
        """How much is still to come of a request that has come in part."""
        return self._incoming.missing_bytes

    @property
    def is_blocked(self) -> bool:
        """Whether the peer does not take its answers."""
        return self.is_open and self._outbox.is_blocked

    def unread_bytes(self) -> int:
        """What lies in memory of answers that the peer does not take."""
        return self._outbox.held_bytes if self.is_open else 0

    def unread_for_s(self) -> float:
        """For how long the peer has taken nothing of its answers, as far as it was looked at."""
        remaining_bytes = self._outbox.remaining_bytes if self.is_open else 0
        if not remaining_bytes or remaining_bytes < self._remaining_bytes or not self._remaining_bytes:
            self._taken_at = self._now()
        self._remaining_bytes = remaining_bytes
        return self._now() - self._taken_at

    def expect_bulky(self, reply: "Future[Reply | None]") -> None:
        """Told of a reply that may be large, before it is returned: few of these are under way or wait to be sent."""
        self._bulky.add(reply)

    def is_overdue(self, deadline: RequestDeadline, *, hurried: bool) -> bool:
        """Whether a request that was begun takes too long to come. While it is not read, that is not its fault."""
        if self._begun_at is None or self._reading_paused:
            return False
        return deadline.has_passed(self._now() - self._begun_at, self._incoming.pending_bytes, hurried=hurried)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are of no common class.
        self._loop = asyncio.get_running_loop()
        peer = transport.get_extra_info("peername")
        self.peer_host = str(peer[0]) if peer else ""
        connected = transport.get_extra_info("socket")
        self._fileno = None if connected is None else int(connected.fileno())
        room: TransportTurns | None = None
        if transport.get_extra_info("sslcontext") is not None:
            room = TransportTurns(self._loop)
            if self._fileno is not None:
                bound_send_buffer(self._fileno, self._limits.send_buffer_bytes, TLS_SEND_BUFFERS)
        elif self._fileno is not None:
            room = SocketRoom(self._loop, self._fileno, self._limits.send_buffer_bytes)
        self._outbox = Outbox(self._transport, room, self._outbox_unblocked)
        self.is_open = True
        self._handle: FrameHandler = _serve_nothing
        self._observer.connection_opened(self)
        try:
            self._handle = self._open_handler(self)
        except CloseConnection as error:
            self.end(str(error))

    def connection_lost(self, exc: Exception | None) -> None:
        for pending in self._pending:
            pending.cancel()
        self._pending.clear()
        # A cancelled reply keeps the frames that it was in, and they know this connection: a circle.
        self._bulky.clear()
        self._outbox.close()
        self._stop_muting()
        self._ending = True
        self._incoming.close()
        # Whoever serves the frames knows the connection: without this circle both are freed at once.
        self._handle = _serve_nothing
        self._observer.connection_closed(self, self._close_reason or (str(exc) if exc else None))

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer knows better
        try:
            return self._incoming.writable()
        except OSError as error:
            self.abort(f"no memory for a request: {os.strerror(error.errno or 0)}")
            return memoryview(bytearray(1))

    def buffer_updated(self, nbytes: int) -> None:
        self.last_active = self._now()
        self._incoming.received(nbytes)
        self._serve_frames()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._outbox.pause()
        self._update_reading()
        self._observer.has_to_look()  # TLS may have more to send than answers.

    def resume_writing(self) -> None:
        self._outbox.resume()
        self._serve_frames()

    def _outbox_unblocked(self) -> None:
        self._flush()
        self._serve_frames()

    def end(self, reason: str) -> None:
        """Take no more requests; close once the replies that are owed have been sent."""
        self._ending = True
        self._close_reason = reason
        self._stop_muting()
        if not self._in_read_event:
            self._incoming.close()
        self._update_reading()
        self._flush()

    def mute(self, duration_ms: int) -> None:
        """Serve no further request for this long, or longer if it was told so before; replies still go out."""
        until = self._now() + duration_ms / 1000
        if until <= self._muted_until or self._ending:
            return
        self._stop_muting()
        self._muted_until = until
        self._unmute_timer = self._loop.call_later(duration_ms / 1000, self._unmute)

    def limit_frames(self, max_bytes: int | None) -> None:
        """Frames may be as long as this from now on; None for as long as those of any connection."""
        limit = self._limits.max_frame_bytes
        self._incoming.max_frame_bytes = limit if max_bytes is None else min(limit, max_bytes)

    def hold(self, until: "Future[Any]") -> None:
        """Serve no further request until then; replies still go out."""
        self._holds += 1
        until.add_done_callback(self._release)

    def abort(self, reason: str) -> None:
        self._close_reason = reason
        self._transport.abort()

    def _serve_frames(self) -> None:
        self._in_read_event = True
        has_served = False
        incoming = self._incoming
        try:
            # What has come has mostly been served with its last frame: nothing else needs to be asked then.
            while not (incoming.is_empty or self._has_to_wait()):
                frame = incoming.next_frame()
                if frame is None:
                    break
                has_served = True
                self._serve(frame)
        except FrameTooLarge as error:
            self.end(str(error))
        except CloseConnection as error:
            self.end(str(error))
        finally:
            self._in_read_event = False
        if self._ending:
            incoming.close()
        else:
            incoming.settle()
        is_empty = incoming.is_empty
        if is_empty:
            self._begun_at = None
        else:
            self._note_begun(has_served=has_served)
        self._flush()
        # Where nothing is left unread and reading goes on there is nothing to change, as nearly always.
        if self._reading_paused or self._ending or not is_empty:
            self._update_reading()

    def _note_begun(self, *, has_served: bool) -> None:
        if not self._incoming.missing_bytes:
            self._begun_at = None
        elif has_served or self._begun_at is None:
            self._begun_at = self.last_active
            self._observer.has_to_look()

    def _serve(self, frame: memoryview) -> None:
        reply = self._handle(frame)
        if reply is None:
            return
        if isinstance(reply, Future):
            self._pending.append(reply)
            reply.add_done_callback(self._reply_done)
        elif self._pending:
            waiting: Future[Reply | None] = self._pending[0].get_loop().create_future()
            waiting.set_result(reply)
            self._pending.append(waiting)
        else:
            self._ready.extend(reply)

    def _reply_done(self, _: "Future[Reply | None]") -> None:
        self._collect()
        if self._in_read_event or self._transport.is_closing():
            return
        if self._reading_paused and not self._ending:
            # Frames may be waiting in the buffer; no read event will come for them.
            self._serve_frames()
        else:
            self._flush()
            self._update_reading()

    def _collect(self) -> None:
        """Move finished replies from the front of the queue to what is sent next."""
        while self._pending and self._pending[0].done():
            done = self._pending.popleft()
            self._bulky.discard(done)
            if done.cancelled() or done.exception() is not None:
                self.abort("a request failed")
                return
            reply = done.result()
            if reply is not None:
                self._ready.extend(reply)

    def _flush(self) -> None:
        if self._ready:
            ready, self._ready = self._ready, []
            if not self._outbox.send(ready):
                self._observer.has_to_look()
        if self._ending and self.is_quiet and not self._transport.is_closing():
            self._transport.close()

    def _unmute(self) -> None:
        self._stop_muting()
        self._serve_what_waits()

    def _release(self, _: "Future[Any]") -> None:
        self._holds -= 1
        self._serve_what_waits()

    def _serve_what_waits(self) -> None:
        """Frames may be waiting in the buffer; no read event will come for them."""
        self.last_active = self._now()
        if not self._transport.is_closing():
            self._serve_frames()

    def _stop_muting(self) -> None:
        if self._unmute_timer is not None:
            self._unmute_timer.cancel()
            self._unmute_timer = None

    def _has_to_wait(self) -> bool:
        """Whether no further request is taken for now."""
        return (
            self._ending
            or self._holds > 0
            or self._unmute_timer is not None
            or self._outbox.is_blocked
            or len(self._pending) >= self._limits.max_requests_in_flight
            or len(self._bulky) >= self._limits.max_bulky_in_flight
        )

    def _update_reading(self) -> None:
        pause = self._may_not_read()
        if pause == self._reading_paused or self._transport.is_closing():
            return
        self._reading_paused = pause
        if pause:
            self._paused_at = self._now()
            self._transport.pause_reading()
        else:
            if self._begun_at is not None:
                self._begun_at += self._now() - self._paused_at
            self._transport.resume_reading()

    def _may_not_read(self) -> bool:
        # Reading stops when there is something to leave unread: a peer that waits for its reply sends nothing.
        if self._ending or self._incoming.is_empty:
            return self._ending
        if self._has_to_wait():
            self._incoming.stop_waiting()
            return True
        return not self._incoming.may_read()
