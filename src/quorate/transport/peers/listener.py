"""The listening side towards peers: every connection is introduced before it may say anything else.

Strangers are held to so many connections that they cost little; the newest push out the oldest, as nodes of the cluster
introduce themselves at once, and then are no strangers.
"""

import asyncio
import logging
from collections.abc import Callable

from quorate.kernel.ids import NodeId
from quorate.transport.peers.accepted import AcceptedConnection
from quorate.transport.peers.frames import Payload
from quorate.transport.peers.hello import Hello, Rejection
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.stream import PeerStream

logger = logging.getLogger(__name__)


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
        self._server = await self._local.loop.create_server(self._open_stream, host, port)
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

    def send(self, node_id: NodeId, payload: Payload) -> bool:
        """Say something to a peer on the connection that it opened; False if it was dropped."""
        connection = self._by_peer.get(node_id)
        return connection is not None and connection.send(payload)

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

    def _open_stream(self) -> PeerStream:
        connection = AcceptedConnection(self._local, self)
        return PeerStream(self._local.loop, self._local.config, connection, reads_while_blocked=False)


def _keep_newest(connections: dict[AcceptedConnection, None], most: int) -> None:
    if len(connections) > most:
        oldest = next(iter(connections))
        del connections[oldest]
        oldest.abort("too many strangers")


def _name(node_id: NodeId | None, connection: AcceptedConnection) -> str:
    return f"{'?' if node_id is None else node_id}@{connection.remote_host}"
