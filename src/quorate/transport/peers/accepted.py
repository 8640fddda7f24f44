"""A connection that a peer dialled: its messages and requests come in, the answers go back."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Protocol

from quorate.kernel.ids import NodeId
from quorate.transport.peers.errors import PeerError, PeerProtocolError
from quorate.transport.peers.frames import (
    FrameKind,
    Payload,
    encode_correlated,
    encode_frame,
    payload_parts,
    split_correlation_id,
)
from quorate.transport.peers.hello import Hello, Rejection, RejectReason, decode_hello, encode_hello, encode_rejection
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.stream import PeerStream

logger = logging.getLogger(__name__)


class AcceptedOwner(Protocol):
    """The listener that a connection belongs to."""

    def connection_opened(self, connection: "AcceptedConnection") -> None: ...

    def peer_introduced(self, connection: "AcceptedConnection", hello: Hello) -> None: ...

    def peer_refused(self, connection: "AcceptedConnection", node_id: NodeId | None, rejection: Rejection) -> None: ...

    def connection_closed(self, connection: "AcceptedConnection", reason: str) -> None: ...


class AcceptedConnection:
    def __init__(self, local: LocalPeer, owner: AcceptedOwner) -> None:
        self._local = local
        self._loop = local.loop
        self._config = local.config
        self._handler = local.handler
        self._owner = owner
        #: Not a set, whose order differs from run to run.
        self._requests: dict[asyncio.Future[Payload], None] = {}
        self._hello: Hello | None = None
        #: Who dialled; None until it has introduced itself.
        self.peer_id: NodeId | None = None
        #: Whether that node belongs to the cluster. If not, it may only ask to join.
        self.is_known = False
        self.remote_host = ""
        self.closed: asyncio.Future[str] = local.loop.create_future()

    def send(self, payload: Payload) -> bool:
        """Say something to the peer on the connection that it opened; False if it was dropped."""
        parts = payload_parts(payload)
        size_bytes = sum(map(len, parts))
        if not self.is_known or self.closed.done() or size_bytes > self._config.max_frame_bytes:
            return False
        if not self._stream.outbox.has_room:
            return False
        self._stream.send(encode_frame(FrameKind.MESSAGE, parts))
        return True

    def review(self) -> None:
        """End the connection where the peer would not be let in now; take more from one that has become known."""
        if self._hello is None:
            return
        if (rejection := self._local.objection(self._hello)) is not None:
            self.abort(rejection.reason)
        elif not self.is_known and self._local.is_known(self._hello):
            self.is_known = True
            self._stream.change_limit(self._config.max_frame_bytes)

    def end(self, reason: str) -> None:
        self._stream.end(reason)

    def abort(self, reason: str) -> None:
        self._stream.abort(reason)

    def stream_opened(self, stream: PeerStream) -> None:
        self._stream = stream
        self.remote_host = stream.remote_host
        self._watch = self._loop.call_later(self._config.connect_timeout_ms / 1000, self._check_introduced)
        self._owner.connection_opened(self)

    def stream_closed(self, reason: str) -> None:
        self._watch.cancel()
        for request in list(self._requests):
            request.cancel()
        if not self.closed.done():
            self.closed.set_result(reason)
        self._owner.connection_closed(self, reason)

    def protocol_broken(self, reason: str) -> None:
        rejection = Rejection(reason=RejectReason.PROTOCOL_BROKEN, message=reason)
        self._owner.peer_refused(self, self.peer_id, rejection)

    def frame_received(self, kind: FrameKind, body: memoryview) -> None:
        if self.peer_id is None:
            self._introduction_received(kind, body)
            return
        match kind:
            case FrameKind.MESSAGE if self.is_known:
                self._handler.message_received(self.peer_id, body)
            case FrameKind.MESSAGE:
                pass  # Not listened to. One that was removed, and comes back to join, does not know that yet.
            case FrameKind.REQUEST:
                self._serve(self.peer_id, *split_correlation_id(body))
            case FrameKind.PING:
                self._stream.send(encode_frame(FrameKind.PONG))
            case _:
                raise PeerProtocolError(f"unexpected {kind.name} from the dialling end")

    def _introduction_received(self, kind: FrameKind, body: memoryview) -> None:
        if kind is not FrameKind.HELLO:
            raise PeerProtocolError(f"{kind.name} in place of a hello")
        hello = decode_hello(body)
        if isinstance(hello, Rejection):
            self._refuse(None, hello)
            return
        rejection = self._local.objection(hello)
        if rejection is not None:
            self._refuse(hello.node_id, rejection)
            return
        config = self._config
        self._hello = hello
        self.is_known = self._local.is_known(hello)
        self._stream.admit(config.max_frame_bytes if self.is_known else config.guest_max_frame_bytes)
        self.peer_id = hello.node_id
        answer = self._local.hello_to(hello.node_id, is_known=self.is_known)
        self._stream.send(encode_frame(FrameKind.HELLO, (encode_hello(answer),)))
        self._owner.peer_introduced(self, hello)

    def _refuse(self, node_id: NodeId | None, rejection: Rejection) -> None:
        self._owner.peer_refused(self, node_id, rejection)
        self._stream.send(encode_frame(FrameKind.REJECT, (encode_rejection(rejection),)))
        self._stream.end(rejection.reason)

    def _serve(self, peer_id: NodeId, correlation_id: int, payload: memoryview) -> None:
        config = self._config
        most = config.max_requests_in_flight if self.is_known else config.guest_max_requests_in_flight
        if len(self._requests) >= most:
            raise PeerProtocolError(f"more than {most} requests in flight")
        try:
            # A copy: the answer may take its time, and the next read overwrites the view.
            answer = self._handler.request_received(peer_id, bytes(payload), is_known=self.is_known)
        except Exception as error:
            self._fail(correlation_id, error)
            return
        if isinstance(answer, Awaitable):
            self._await_answer(correlation_id, answer)
        else:
            self._answer(correlation_id, answer)

    def _await_answer(self, correlation_id: int, answer: Awaitable[Payload]) -> None:
        request = asyncio.ensure_future(answer, loop=self._loop)
        self._requests[request] = None

        def done(_: asyncio.Future[Payload]) -> None:
            self._requests.pop(request, None)
            if request.cancelled():
                self._fail(correlation_id, asyncio.CancelledError())
            elif (error := request.exception()) is not None:
                self._fail(correlation_id, error)
            else:
                self._answer(correlation_id, request.result())

        request.add_done_callback(done)

    def _answer(self, correlation_id: int, answer: Payload) -> None:
        parts = payload_parts(answer)
        size_bytes = sum(map(len, parts))
        if size_bytes > self._config.max_frame_bytes:
            self._fail(correlation_id, ValueError(f"an answer of {size_bytes} bytes is too large"))
        elif not self.closed.done():
            self._stream.send(encode_correlated(FrameKind.RESPONSE, correlation_id, parts))

    def _fail(self, correlation_id: int, error: BaseException) -> None:
        if self.closed.done():
            return
        if isinstance(error, PeerProtocolError):
            self._stream.give_up(str(error))
            return
        if not isinstance(error, PeerError):  # That is a refusal, which its asker knows how to take.
            node_id = self._local.identity.node_id
            logger.error("peer request failed node=%s peer=%s", node_id, self.peer_id, exc_info=error)
        why = f"{type(error).__name__}: {error}"[:1000].encode()
        self._stream.send(encode_correlated(FrameKind.FAILURE, correlation_id, (why,)))

    def _check_introduced(self) -> None:
        if self.peer_id is None:
            self._stream.abort(f"no hello within {self._config.connect_timeout_ms} ms")
        else:
            self._check_silence()

    def _check_silence(self) -> None:
        self._watch = self._loop.call_later(self._config.ping_interval_ms / 1000, self._check_silence)
        self._stream.abort_if_silent()
