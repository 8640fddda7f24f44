"""The listening side towards peers: every connection is introduced before it may say anything else.

Strangers are held to so many connections that they cost little; the newest push out the oldest, as nodes of the cluster
introduce themselves at once, and then are no strangers.

On an ``AcceptedConnection`` the peer's messages and requests come in, and the answers go back.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Protocol

from quorate.kernel.ids import NodeId
from quorate.kernel.tasks import awaited_task
from quorate.transport.peers.channels import Sender
from quorate.transport.peers.errors import PeerError, PeerProtocolError
from quorate.transport.peers.frames import (
    Channel,
    FrameKind,
    Payload,
    encode_answer,
    encode_frame,
    encode_message,
    payload_parts,
    split_channel,
    split_correlation_id,
)
from quorate.transport.peers.hello import Hello, Rejection, RejectReason, encode_hello, encode_rejection
from quorate.transport.peers.introduction import ListenerIntroduction
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.secured import PeerTlsLayer
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
        self._channels = local.channels
        self._owner = owner
        #: Not a set, whose order differs from run to run.
        self._requests: dict[asyncio.Future[Payload], None] = {}
        #: While its handshake lasts.
        self._handshake: PeerTlsLayer | None = None
        self._hello: Hello | None = None
        #: Who dialled; None until it has introduced itself.
        self.peer_id: NodeId | None = None
        #: Whether that node belongs to the cluster. If not, it may only ask to join.
        self.is_known = False
        self.remote_host = ""
        self.closed: asyncio.Future[str] = local.loop.create_future()

    def send(self, channel: Channel, payload: Payload) -> bool:
        """Say something to the peer on the connection that it opened; False if it was dropped."""
        parts = payload_parts(payload)
        size_bytes = sum(map(len, parts))
        if not self.is_known or self.closed.done() or size_bytes > self._config.max_frame_bytes:
            return False
        if not self._stream.outbox.has_room:
            return False
        self._stream.send(encode_message(channel, parts))
        return True

    def review(self) -> None:
        """End the connection where the peer would not be let in now; take more from one that has become known."""
        if self._hello is None:
            return
        if (rejection := self._introduction.objection()) is not None:
            self.abort(rejection.reason)
        elif not self.is_known and self._local.is_known(self._hello):
            self.is_known = True
            self._stream.change_limit(self._config.max_frame_bytes)

    def end(self, reason: str) -> None:
        if self._handshake is not None:
            self._abort_handshake(self._handshake, reason)
        elif not self.closed.done():
            self._stream.end(reason)

    def abort(self, reason: str) -> None:
        if self._handshake is not None:
            self._abort_handshake(self._handshake, reason)
        elif not self.closed.done():
            self._stream.abort(reason)

    def open_protocol(self) -> PeerStream | PeerTlsLayer:
        stream = PeerStream(self._loop, self._config, self, self._local.received, reads_while_blocked=False)
        tls = self._local.credentials.tls
        return stream if tls is None else PeerTlsLayer(self._local, tls, stream, self, is_dialler=False)

    def handshake_begun(self, layer: PeerTlsLayer) -> None:
        self._handshake = layer
        self._opened(layer.remote_host)

    def handshake_failed(self, rejection: Rejection | None) -> None:
        self._handshake = None
        if rejection is not None:
            self._owner.peer_refused(self, None, rejection)
        self.stream_closed("no handshake")

    def stream_opened(self, stream: PeerStream) -> None:
        self._stream = stream
        layer, self._handshake = self._handshake, None
        if layer is None:
            self._opened(stream.remote_host)
        self._introduction = ListenerIntroduction(self._local, None if layer is None else layer.certificate())
        if layer is not None and (rejection := self._introduction.objection()) is not None:
            self._refuse(rejection)

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
                self._channels.message_received(self.peer_id, *split_channel(body))
            case FrameKind.MESSAGE:
                pass  # Not listened to. One that was removed, and comes back to join, does not know that yet.
            case FrameKind.REQUEST:
                correlation_id, rest = split_correlation_id(body)
                self._serve(Sender(self.peer_id, self.is_known), correlation_id, *split_channel(rest))
            case FrameKind.PING:
                self._stream.send(encode_frame(FrameKind.PONG))
            case _:
                raise PeerProtocolError(f"unexpected {kind.name} from the dialling end")

    def _opened(self, remote_host: str) -> None:
        self.remote_host = remote_host
        self._watch = self._loop.call_later(self._config.connect_timeout_ms / 1000, self._check_introduced)
        self._owner.connection_opened(self)

    def _abort_handshake(self, layer: PeerTlsLayer, reason: str) -> None:
        self._handshake = None
        layer.abort()
        self.stream_closed(reason)

    def _introduction_received(self, kind: FrameKind, body: memoryview) -> None:
        found = self._introduction.receive(kind, body)
        if isinstance(found, Rejection):
            self._refuse(found)
        elif isinstance(found, Hello):
            self._introduce(found)
        else:
            self._stream.send(found)

    def _introduce(self, hello: Hello) -> None:
        config = self._config
        self._hello = hello
        self.is_known = self._local.is_known(hello)
        self._stream.admit(config.max_frame_bytes if self.is_known else config.guest_max_frame_bytes)
        self.peer_id = hello.node_id
        answer = self._local.hello_to(hello.node_id, is_known=self.is_known)
        self._stream.send(encode_frame(FrameKind.HELLO, (encode_hello(answer),)))
        self._owner.peer_introduced(self, hello)

    def _refuse(self, rejection: Rejection) -> None:
        self._owner.peer_refused(self, self._introduction.claimed, rejection)
        if rejection.reason == RejectReason.NOT_PROVEN:
            self._stream.abort(rejection.reason)
            return
        self._stream.send(encode_frame(FrameKind.REJECT, (encode_rejection(rejection),)))
        self._stream.end(rejection.reason)

    def _serve(self, sender: Sender, correlation_id: int, channel: Channel, payload: memoryview) -> None:
        config = self._config
        most = config.max_requests_in_flight if self.is_known else config.guest_max_requests_in_flight
        if len(self._requests) >= most:
            raise PeerProtocolError(f"more than {most} requests in flight")
        try:
            # A copy: the answer may take its time, and the next read overwrites the view.
            answer = self._channels.request_received(sender, channel, bytes(payload))
        except Exception as error:
            self._fail(correlation_id, error)
            return
        if isinstance(answer, asyncio.Future):
            self._await_answer(correlation_id, answer)
        elif isinstance(answer, Coroutine):
            self._await_answer(correlation_id, awaited_task(self._loop, answer))
        else:
            self._answer(correlation_id, answer)

    def _await_answer(self, correlation_id: int, request: asyncio.Future[Payload]) -> None:
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
            self._stream.send(encode_answer(FrameKind.RESPONSE, correlation_id, parts))

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
        self._stream.send(encode_answer(FrameKind.FAILURE, correlation_id, (why,)))

    def _check_introduced(self) -> None:
        if self.peer_id is None:
            self.abort(f"no hello within {self._config.connect_timeout_ms} ms")
        else:
            self._check_silence()

    def _check_silence(self) -> None:
        self._watch = self._loop.call_later(self._config.ping_interval_ms / 1000, self._check_silence)
        self._stream.abort_if_silent()


class PeerListener:
    """Keeps one connection a peer, the newest: an older one is a leftover whose messages would come out of order."""

    def __init__(self, local: LocalPeer, introduced: Callable[[Hello], None]) -> None:
        self._local = local
        self._introduced = introduced
        #: Not a set, whose order differs from run to run.
        self._connections: dict[AcceptedConnection, None] = {}
        self._by_peer: dict[NodeId, AcceptedConnection] = {}
        #: The oldest first.
        self._unintroduced: dict[AcceptedConnection, None] = {}
        self._guests: dict[AcceptedConnection, None] = {}
        self._closed = False
        self._server: asyncio.Server | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        self._server = await self._local.loop.create_server(self._accept, host, port)
        self.port = port
        if self._server.sockets:
            self.port = self._server.sockets[0].getsockname()[1]

    def close(self, reason: str) -> list[AcceptedConnection]:
        """Take no more connections and end those there are; they may still have to say their last."""
        self._closed = True
        if self._server is not None:
            self._server.close()
        connections = list(self._connections)
        for connection in connections:
            connection.end(reason)
        return connections

    def review(self) -> None:
        for connection in list(self._by_peer.values()):
            connection.review()
            if connection.is_known:
                self._guests.pop(connection, None)

    def send(self, node_id: NodeId, channel: Channel, payload: Payload) -> bool:
        """Say something to a peer on the connection that it opened; False if it was dropped."""
        connection = self._by_peer.get(node_id)
        return connection is not None and connection.send(channel, payload)

    def connection_opened(self, connection: AcceptedConnection) -> None:
        self._connections[connection] = None
        self._unintroduced[connection] = None
        if self._closed:
            connection.abort("the node stops")
        _keep_newest(self._unintroduced, self._local.config.max_unintroduced)

    def peer_introduced(self, connection: AcceptedConnection, hello: Hello) -> None:
        self._unintroduced.pop(connection, None)
        if not connection.is_known:
            self._guests[connection] = None
            _keep_newest(self._guests, self._local.config.max_guests)
        former = self._by_peer.get(hello.node_id)
        self._by_peer[hello.node_id] = connection
        if former is not None:
            former.abort("replaced by a newer connection")
        self._local.refusals.forget(_name(hello.node_id, connection))
        self._introduced(hello)

    def peer_refused(self, connection: AcceptedConnection, node_id: NodeId | None, rejection: Rejection) -> None:
        self._local.refusals.note(_name(node_id, connection), rejection)

    def connection_closed(self, connection: AcceptedConnection, reason: str) -> None:
        for connections in (self._connections, self._unintroduced, self._guests):
            connections.pop(connection, None)
        if connection.peer_id is not None and self._by_peer.get(connection.peer_id) is connection:
            del self._by_peer[connection.peer_id]
        logger.debug(
            "peer connection closed peer=%s host=%s reason=%s", connection.peer_id, connection.remote_host, reason
        )

    def _accept(self) -> PeerStream | PeerTlsLayer:
        return AcceptedConnection(self._local, self).open_protocol()


def _keep_newest(connections: dict[AcceptedConnection, None], most: int) -> None:
    if len(connections) > most:
        oldest = next(iter(connections))
        del connections[oldest]
        oldest.abort("too many strangers")


def _name(node_id: NodeId | None, connection: AcceptedConnection) -> str:
    return f"{'?' if node_id is None else node_id}@{connection.remote_host}"
