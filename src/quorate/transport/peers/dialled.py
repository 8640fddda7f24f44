"""A connection that this node dialled: its messages and requests go out, the answers come back."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

from quorate.kernel.ids import NodeId
from quorate.transport.peers.errors import OutcomeUnknown, PeerError, PeerProtocolError, PeerTimeout, PeerUnreachable
from quorate.transport.peers.frames import (
    FRAME_OVERHEAD_BYTES,
    FrameKind,
    Payload,
    encode_correlated,
    encode_frame,
    payload_parts,
    split_correlation_id,
)
from quorate.transport.peers.hello import Hello, Rejection, RejectReason, decode_hello, decode_rejection, encode_hello
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.stream import PeerStream

Answer = TypeVar("Answer")


class DialledConnection:
    """One attempt to reach a peer, and the connection that comes of it. It does not outlive its stream."""

    def __init__(self, local: LocalPeer, peer_id: NodeId) -> None:
        self._local = local
        self._loop = loop = local.loop
        self._config = local.config
        self._peer_id = peer_id
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

    def open_stream(self) -> PeerStream:
        # Always reading: answers have to come in even while the peer takes nothing.
        # Behind its hello the peer may say more at once, so there is no smaller limit before that.
        limit = self._config.max_frame_bytes + FRAME_OVERHEAD_BYTES
        return PeerStream(self._loop, self._config, self, reads_while_blocked=True, first_frame_bytes=limit)

    def send(self, payload: Payload) -> bool:
        parts = payload_parts(payload)
        if self._refusal(sum(map(len, parts))) is not None:
            return False
        assert self._stream is not None
        self._stream.send(encode_frame(FrameKind.MESSAGE, parts))
        return True

    async def request(self, payload: Payload, timeout_ms: float, read: Callable[[memoryview], Answer]) -> Answer:
        parts = payload_parts(payload)
        refusal = self._refusal(sum(map(len, parts)))
        if refusal is None and len(self._requests) >= self._config.max_requests_in_flight:
            refusal = "has too many requests in flight"
        if refusal is not None:
            raise PeerUnreachable(f"node {self._peer_id} {refusal}")
        assert self._stream is not None
        self._last_correlation_id += 1
        correlation_id = self._last_correlation_id
        answer: asyncio.Future[Answer] = self._loop.create_future()
        self._requests[correlation_id] = answer, read
        self._stream.send(encode_correlated(FrameKind.REQUEST, correlation_id, parts))
        timer = self._loop.call_later(timeout_ms / 1000, self._time_out, correlation_id, timeout_ms)
        try:
            return await answer
        finally:
            timer.cancel()
            self._requests.pop(correlation_id, None)

    def drop_stranger(self) -> None:
        """End the connection where the peer would not be let in now."""
        hello = self.introduced.result() if self._is_up else None
        if isinstance(hello, Hello) and (rejection := self._local.objection(hello, self._peer_id)) is not None:
            self.abort(rejection.reason)

    def end(self, reason: str) -> None:
        self._is_up = False
        if self._stream is not None:
            self._stream.end(reason)

    def abort(self, reason: str) -> None:
        self._is_up = False
        if self._stream is not None:
            self._stream.abort(reason)

    def stream_opened(self, stream: PeerStream) -> None:
        self._stream = stream
        stream.send(encode_frame(FrameKind.HELLO, (encode_hello(self._local.hello_to(self._peer_id)),)))

    def stream_closed(self, reason: str) -> None:
        self._is_up = False
        if self._pulse is not None:
            self._pulse.cancel()
        requests, self._requests = self._requests, {}
        for answer, _ in requests.values():
            if not answer.done():
                answer.set_exception(OutcomeUnknown(f"the link to node {self._peer_id} ended: {reason}"))
        if not self.introduced.done():
            self.introduced.set_result(None)
        if not self.closed.done():
            self.closed.set_result(reason)

    def frame_received(self, kind: FrameKind, body: memoryview) -> None:
        if not self.introduced.done():
            self._introduction_received(kind, body)
            return
        match kind:
            case FrameKind.RESPONSE:
                self._answered(*split_correlation_id(body))
            case FrameKind.FAILURE:
                correlation_id, payload = split_correlation_id(body)
                why = str(payload, "utf-8", "replace")
                self._failed(correlation_id, OutcomeUnknown(f"node {self._peer_id} failed: {why}"))
            case FrameKind.MESSAGE:
                # The peer does not know yet where this node can be dialled.
                self._local.handler.message_received(self._peer_id, body)
            case FrameKind.PONG:
                pass
            case _:
                raise PeerProtocolError(f"unexpected {kind.name} from the dialled end")

    def protocol_broken(self, reason: str) -> None:
        rejection = Rejection(reason=RejectReason.PROTOCOL_BROKEN, message=reason)
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
        if kind is FrameKind.REJECT:
            self.introduced.set_result(decode_rejection(body))
            self._stream.end("rejected")
            return
        if kind is not FrameKind.HELLO:
            raise PeerProtocolError(f"{kind.name} in place of a hello")
        hello = decode_hello(body)
        rejection = hello if isinstance(hello, Rejection) else self._local.objection(hello, self._peer_id)
        if rejection is not None:
            self.introduced.set_result(rejection)
            self._stream.end(rejection.reason)
            return
        self._is_up = True
        self.introduced.set_result(hello)
        self._schedule_pulse()

    def _schedule_pulse(self) -> None:
        self._pulse = self._loop.call_later(self._config.ping_interval_ms / 1000, self._beat)

    def _beat(self) -> None:
        assert self._stream is not None
        if self._stream.outbox.has_room:
            self._stream.send(encode_frame(FrameKind.PING))
        self._schedule_pulse()
        self._stream.abort_if_silent()

    def _refusal(self, size: int) -> str | None:
        """Why nothing of this size can be sent now."""
        if not self._is_up or self._stream is None:
            return "is not connected"
        if size > self._config.max_frame_bytes:
            return f"takes no more than {self._config.max_frame_bytes} bytes, not {size}"
        return None if self._stream.outbox.has_room else "does not take what it is sent: the queue is full"

    def _time_out(self, correlation_id: int, timeout_ms: float) -> None:
        self._failed(correlation_id, PeerTimeout(f"node {self._peer_id} did not answer within {timeout_ms:g} ms"))
