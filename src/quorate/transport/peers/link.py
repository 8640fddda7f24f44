"""The link to one peer: dialled, kept up, and its end reported with what is known of the cause.

A link that ends is dialled again at once: that is how a process that died is told from a connection that was reset. A
link to one and the same process that ends again and again soon after it came up is not, so that it cannot keep the
loop busy.

Each attempt to dial is a ``DialledConnection``: messages and requests go out on it, the answers come back.
"""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from quorate.kernel.ids import NodeId
from quorate.kernel.tasks import TaskScope
from quorate.transport.peers.config import Address, PeerConfig
from quorate.transport.peers.errors import (
    OutcomeUnknown,
    PeerError,
    PeerProtocolError,
    PeerTimeout,
    PeerUnreachable,
    is_refusal,
)
from quorate.transport.peers.frames import (
    FRAME_OVERHEAD_BYTES,
    Channel,
    FrameKind,
    Payload,
    encode_frame,
    encode_message,
    encode_request,
    payload_parts,
    split_channel,
    split_correlation_id,
)
from quorate.transport.peers.hello import MAX_HELLO_BYTES, Hello, Rejection, RejectReason
from quorate.transport.peers.introduction import ENDED_IN_HANDSHAKE, DiallerIntroduction
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.secured import PeerTlsLayer
from quorate.transport.peers.stream import PeerStream

Answer = TypeVar("Answer")
logger = logging.getLogger(__name__)

_MAX_DOUBLINGS = 20


class ReconnectSchedule:
    def __init__(self, config: PeerConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._failures = 0  # Attempts in a row that came to nothing.
        self._incarnation: int | None = None  # Of the process that the last link led to.
        self._short_links = 0  # Links to it in a row that did not last.

    def link_came_up(self, incarnation: int) -> None:
        if incarnation != self._incarnation:
            self._incarnation = incarnation
            self._short_links = 0

    def link_ended(self, lasted_ms: float) -> float:
        """The delay in milliseconds before the next attempt."""
        self._failures = 0
        if lasted_ms >= self._config.reconnect_backoff_max_ms:
            self._short_links = 0
        delay_ms = self._delay_ms(self._short_links)
        self._short_links += 1
        return delay_ms

    def attempt_failed(self) -> float:
        """The delay in milliseconds before the next attempt."""
        self._failures += 1
        return self._delay_ms(self._failures)

    def peer_is_up(self) -> None:
        """The peer was heard of: earlier failures say nothing any more."""
        self._failures = 0

    def _delay_ms(self, times: int) -> float:
        if times == 0:
            return 0
        config = self._config
        longest_ms = config.reconnect_backoff_min_ms << min(times - 1, _MAX_DOUBLINGS)
        # Half of it is random, so that nodes that lost a peer together do not return in step.
        return min(longest_ms, config.reconnect_backoff_max_ms) * self._random.uniform(0.5, 1)


class DialledConnection:
    """One attempt to reach a peer, and the connection that comes of it. It does not outlive its stream.

    ==================  =============================================  ==================
    from                when                                           to
    ==================  =============================================  ==================
    not connected       the loop has a stream: the opening is sent     introducing
    introducing         a step of the handshake: the next is sent      introducing
    introducing         a certificate with an objection                closed
    introducing         a hello without objection: ``introduced``      up
    introducing         a rejection, or a hello with an objection      closed
    up                  messages out, requests out, their answers in   up
    up                  silence, a broken frame, ``end``, ``abort``    closed
    ==================  =============================================  ==================

    What waits for an answer when it closes gets ``OutcomeUnknown``.
    """

    def __init__(self, local: LocalPeer, peer_id: NodeId) -> None:
        self._local = local
        self._loop = loop = local.loop
        self._config = local.config
        self._peer_id = peer_id
        #: While its handshake lasts.
        self._handshake: PeerTlsLayer | None = None
        self._stream: PeerStream | None = None
        self._pulse: asyncio.TimerHandle | None = None
        #: What waits for an answer, and what reads it.
        self._requests: dict[int, tuple[asyncio.Future[Any], Callable[[memoryview], object]]] = {}
        self._last_correlation_id = 0
        self._is_up = False
        #: The peer's hello, or why there is none.
        self.introduced: asyncio.Future[Hello | Rejection | None] = loop.create_future()
        #: Why the connection ended.
        self.closed: asyncio.Future[str] = loop.create_future()

    @property
    def is_up(self) -> bool:
        return self._is_up

    def open_protocol(self) -> PeerStream | PeerTlsLayer:
        credentials = self._local.credentials
        # Always reading: answers have to come in even while the peer takes nothing.
        # Behind its hello the peer may say more at once, so there is no smaller limit before that; before its proof it
        # may not.
        limit = self._config.max_frame_bytes + FRAME_OVERHEAD_BYTES if credentials.secrets is None else MAX_HELLO_BYTES
        stream = PeerStream(
            self._loop,
            self._config,
            self,
            self._local.received,
            reads_while_blocked=True,
            first_frame_bytes=limit,
        )
        if credentials.tls is None:
            return stream
        return PeerTlsLayer(self._local, credentials.tls, stream, self, is_dialler=True)

    def send(self, channel: Channel, payload: Payload) -> bool:
        parts = payload_parts(payload)
        stream = self._stream_for(sum(map(len, parts)))
        if isinstance(stream, str):
            return False
        stream.send(encode_message(channel, parts))
        return True

    async def request(
        self, channel: Channel, payload: Payload, timeout_ms: float, read: Callable[[memoryview], Answer]
    ) -> Answer:
        parts = payload_parts(payload)
        stream = self._stream_for(sum(map(len, parts)))
        if isinstance(stream, PeerStream) and len(self._requests) >= self._config.max_requests_in_flight:
            stream = "has too many requests in flight"
        if isinstance(stream, str):
            raise PeerUnreachable(f"node {self._peer_id} {stream}")
        self._last_correlation_id += 1
        correlation_id = self._last_correlation_id
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._requests[correlation_id] = answer, read
        stream.send(encode_request(correlation_id, channel, parts))
        timer = self._loop.call_later(timeout_ms / 1000, self._time_out, correlation_id, timeout_ms)
        try:
            return await answer
        finally:
            timer.cancel()
            self._requests.pop(correlation_id, None)
            del answer  # It keeps the error that it raises, and that this frame.

    def drop_stranger(self) -> None:
        """End the connection where the peer would not be let in now."""
        if self._is_up and (rejection := self._introduction.objection()) is not None:
            self.abort(rejection.reason)

    def end(self, reason: str) -> None:
        self._is_up = False
        if self._stream is not None:
            self._stream.end(reason)

    def abort(self, reason: str) -> None:
        self._is_up = False
        if self._stream is not None:
            self._stream.abort(reason)
        elif self._handshake is not None:
            self._handshake.abort()

    def handshake_begun(self, layer: PeerTlsLayer) -> None:
        self._handshake = layer

    def handshake_failed(self, rejection: Rejection | None) -> None:
        self._handshake = None
        if not self.introduced.done():
            self.introduced.set_result(rejection)

    def stream_opened(self, stream: PeerStream) -> None:
        self._stream = stream
        layer, self._handshake = self._handshake, None
        certificate = None if layer is None else layer.certificate()
        self._introduction = DiallerIntroduction(self._local, self._peer_id, certificate)
        if (rejection := self._introduction.objection()) is None:
            stream.send(self._introduction.opening())
        else:
            self.introduced.set_result(rejection)
            stream.abort(rejection.reason)

    def stream_closed(self, reason: str) -> None:
        self._is_up = False
        if self._pulse is not None:
            self._pulse.cancel()
        requests, self._requests = self._requests, {}
        for answer, _ in requests.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"the link to node {self._peer_id} ended: {reason}"))
        if not self.introduced.done():
            self.introduced.set_result(self._introduction.unfinished(reason))
        if not self.closed.done():
            self.closed.set_result(reason)

    def frame_received(self, kind: FrameKind, body: memoryview) -> None:
        if not self.introduced.done():
            self._introduction_received(kind, body)
            return
        if self.introduced.cancelled():
            return  # Nobody waits for it any more: it is about to be aborted.
        match kind:
            case FrameKind.RESPONSE:
                self._answered(*split_correlation_id(body))
            case FrameKind.FAILURE:
                correlation_id, payload = split_correlation_id(body)
                why = str(payload, "utf-8", "replace")
                self._failed(correlation_id, OutcomeUnknown(f"node {self._peer_id} failed: {why}"))
            case FrameKind.MESSAGE:
                # The peer does not know yet where this node can be dialled.
                self._local.channels.message_received(self._peer_id, *split_channel(body))
            case FrameKind.PONG:
                pass
            case _:
                raise PeerProtocolError(f"unexpected {kind.name} from the dialled end")

    def protocol_broken(self, reason: str) -> None:
        rejection = Rejection(reason=RejectReason.PROTOCOL_BROKEN, message=reason)
        if not self.introduced.done():
            self.introduced.set_result(rejection)
            return
        self._local.refusals.note(f"{self._peer_id}@{self._stream.remote_host if self._stream else ''}", rejection)

    def _answered(self, correlation_id: int, payload: memoryview) -> None:
        answer, read = self._requests.get(correlation_id, (None, bytes))
        if answer is None or answer.done():
            return  # It comes too late.
        try:
            found = read(payload)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():  # What was read may have stopped the one who asked.
                answer.set_result(found)

    def _failed(self, correlation_id: int, error: PeerError) -> None:
        answer, _ = self._requests.get(correlation_id, (None, bytes))
        if answer is not None and not answer.done():
            answer.set_exception(error)

    def _introduction_received(self, kind: FrameKind, body: memoryview) -> None:
        assert self._stream is not None
        was_proven = self._introduction.is_proven
        found = self._introduction.receive(kind, body)
        if isinstance(found, Rejection):
            self.introduced.set_result(found)
            self._stream.end(found.reason)
        elif isinstance(found, Hello):
            self._is_up = True
            self.introduced.set_result(found)
            self._schedule_pulse()
        else:
            if self._introduction.is_proven and not was_proven:
                self._stream.admit(self._config.max_frame_bytes)
            self._stream.send(found)

    def _schedule_pulse(self) -> None:
        self._pulse = self._loop.call_later(self._config.ping_interval_ms / 1000, self._beat)

    def _beat(self) -> None:
        assert self._stream is not None
        if self._stream.outbox.has_room:
            self._stream.send(encode_frame(FrameKind.PING))
        self._schedule_pulse()
        self._stream.abort_if_silent()

    def _stream_for(self, size: int) -> PeerStream | str:
        """What something of this size can be sent on now, or why it cannot."""
        if not self._is_up or self._stream is None:
            return "is not connected"
        if size > self._config.max_frame_bytes:
            return f"takes no more than {self._config.max_frame_bytes} bytes, not {size}"
        return self._stream if self._stream.outbox.has_room else "does not take what it is sent: the queue is full"

    def _time_out(self, correlation_id: int, timeout_ms: float) -> None:
        self._failed(correlation_id, PeerTimeout(f"node {self._peer_id} did not answer within {timeout_ms:g} ms"))


class PeerLink:
    """Dials until it is closed, and tells the watchers of what it meets.

        ┌──────────┐   a hello that is taken: peer_connected        ┌──────┐
        │ dialling │ ─────────────────────────────────────────────▶ │  up  │
        └──────────┘                                                └──────┘
          ▲      │ no hello, refused, out of time                       │ ended: peer_connection_lost
          │      ▼                                                      ▼
        ┌────────────────────────────────────────────────────────────────────┐
        │ pausing: not at all behind a link that lasted, longer and longer   │
        │ behind attempts that fail, and ended early by a hello of the peer  │
        └────────────────────────────────────────────────────────────────────┘

    Where the peer was up, and then an attempt meets no process that listens: peer_died, once.
    """

    def __init__(self, local: LocalPeer, peer_id: NodeId, address: Address) -> None:
        self._local = local
        self._loop = local.loop
        self._node_id = local.identity.node_id
        self._peer_id = peer_id
        self._schedule = ReconnectSchedule(local.config, local.random)
        self._connection: DialledConnection | None = None
        self._wake: asyncio.Future[None] | None = None
        #: The link ended, and it is not known yet whether the process did.
        self._loss_unexplained = False
        #: So did the last attempt.
        self._ended_in_handshake = False
        self.address = address
        #: Whether the last attempt met no process that listens.
        self.is_refusing = False
        self._tasks = TaskScope(self._loop, self._report_failure)
        self._tasks.spawn(self._keep_up())

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_up

    def send(self, channel: Channel, payload: Payload) -> bool:
        return self._connection is not None and self._connection.send(channel, payload)

    async def request(
        self, channel: Channel, payload: Payload, timeout_ms: float, read: Callable[[memoryview], Answer]
    ) -> Answer:
        if self._connection is None:
            raise PeerUnreachable(f"node {self._peer_id} is not connected")
        return await self._connection.request(channel, payload, timeout_ms, read)

    def peer_is_up(self) -> None:
        """The peer was heard of: do not wait any longer before dialling it."""
        self._schedule.peer_is_up()
        self._end_pause()

    def drop_stranger(self) -> None:
        """End the connection where the peer would not be let in now."""
        if self._connection is not None:
            self._connection.drop_stranger()

    def close(self, reason: str) -> DialledConnection | None:
        """Stop, and tell no watcher; the connection that may still have to say its last, if there is one."""
        self._tasks.cancel_all()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end(reason)
        return connection

    async def _keep_up(self) -> None:
        while True:
            connection = DialledConnection(self._local, self._peer_id)
            hello = await self._dial(connection)
            if hello is None:
                if self.is_refusing and self._loss_unexplained:
                    self._loss_unexplained = False
                    logger.warning("peer died node=%s peer=%s", self._node_id, self._peer_id)
                    for watcher in self._local.watchers:
                        watcher.peer_died(self._peer_id)
                await self._pause(self._schedule.attempt_failed())
            else:
                lasted_ms = await self._hold(connection, hello)
                await self._pause(self._schedule.link_ended(lasted_ms))

    async def _dial(self, connection: DialledConnection) -> Hello | None:
        try:
            async with asyncio.timeout(self._local.config.connect_timeout_ms / 1000):
                await self._loop.create_connection(connection.open_protocol, self.address.host, self.address.port)
                self.is_refusing = False
                answer = await connection.introduced
        except (OSError, ValueError, OverflowError) as error:  # The last two: an address that cannot be one.
            self.is_refusing = is_refusal(error)
            answer = None
            logger.debug("peer not reached node=%s peer=%s error=%s", self._node_id, self._peer_id, error)
        finally:
            if not connection.is_up:
                connection.abort("not introduced")
        has_ended = answer is ENDED_IN_HANDSHAKE or (
            isinstance(answer, Rejection) and answer.reason == RejectReason.TLS_FAILED
        )
        ended_before, self._ended_in_handshake = self._ended_in_handshake, has_ended
        if isinstance(answer, Rejection):
            if not has_ended or ended_before:  # Once may be the end of a process.
                self._local.refusals.note(f"{self._peer_id}@{self.address}", answer)
            return None
        return answer

    async def _hold(self, connection: DialledConnection, hello: Hello) -> float:
        """Use the connection until it ends; how long it lasted, in milliseconds."""
        began = self._loop.time()
        self._schedule.link_came_up(hello.incarnation)
        self._connection = connection
        self._loss_unexplained = False
        self._local.refusals.forget(f"{self._peer_id}@{self.address}")
        logger.info(
            "peer connected node=%s peer=%s address=%s incarnation=%s",
            self._node_id,
            self._peer_id,
            self.address,
            hello.incarnation,
        )
        for watcher in self._local.watchers:
            watcher.peer_connected(self._peer_id, hello.incarnation)
        reason = await connection.closed
        self._connection = None
        self._loss_unexplained = True
        logger.warning("peer connection lost node=%s peer=%s reason=%s", self._node_id, self._peer_id, reason)
        for watcher in self._local.watchers:
            watcher.peer_connection_lost(self._peer_id)
        return (self._loop.time() - began) * 1000

    async def _pause(self, delay_ms: float) -> None:
        if not delay_ms:
            return
        self._wake = self._loop.create_future()
        timer = self._loop.call_later(delay_ms / 1000, self._end_pause)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _end_pause(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _report_failure(self, error: Exception) -> None:
        """A watcher that raised has stopped this link: that must not pass unseen."""
        self._loop.call_exception_handler({"message": f"link to peer {self._peer_id} failed", "exception": error})
