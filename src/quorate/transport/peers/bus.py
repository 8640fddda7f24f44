"""The peer bus: a node's connections to all its peers, and the channels on them, one for each part that has peers.

Messages and requests are opaque, in order per peer, and no peer waits for another. Whoever takes them registers before
the bus starts; only what a node cannot have before it has joined the cluster, its replicas, answers later.

Each node dials every peer it knows and says there what it has to say; answers come back on the same connection. Between
two nodes there are therefore two connections, one for each to speak on. To a peer that cannot be dialled, as nobody
but itself has said yet where it is, messages go on the connection that it has opened. Messages may be lost, also after
``send`` has taken them, but are neither reordered nor repeated on one connection.
"""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import TypeVar

from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NodeId
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.channels import LinkWatcher, MessageHandler, PeerDirectory, RequestHandler
from quorate.transport.peers.config import Address, PeerConfig, PeerIdentity
from quorate.transport.peers.errors import PeerUnreachable
from quorate.transport.peers.frames import Channel, Payload
from quorate.transport.peers.hello import Hello
from quorate.transport.peers.link import DialledConnection, PeerLink
from quorate.transport.peers.listener import AcceptedConnection, PeerListener
from quorate.transport.peers.local import LocalPeer
from quorate.transport.reserved_address import listen_error

Answer = TypeVar("Answer")

_WILDCARD_HOSTS = frozenset({"", "0.0.0.0", "::"})


class PeerBus:
    """A node without peers has one that never starts: it reaches nobody."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        identity: PeerIdentity,
        config: PeerConfig,
        credentials: PeerCredentials | None = None,
    ) -> None:
        """Without credentials whoever connects is believed; with them ``random`` is one that nobody can foresee."""
        self._local = LocalPeer(loop, random, identity, config, credentials or PeerCredentials())
        self._listener = PeerListener(self._local, self._introduced)
        self._addresses: dict[NodeId, Address] = {}
        self._links: dict[NodeId, PeerLink] = {}
        self._running = False

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def credentials(self) -> PeerCredentials:
        """What is shown and asked for now."""
        return self._local.credentials

    def know_by(self, directory: PeerDirectory) -> None:
        """Let in, and hear, whom the directory knows."""
        self._local.directory = directory

    def watch_links(self, watcher: LinkWatcher) -> None:
        """Tell of the links, after those who have been told for longer."""
        self._local.watchers.append(watcher)

    def take_messages(self, channel: Channel, handler: MessageHandler) -> None:
        self._local.channels.take_messages(channel, handler)

    def answer_requests(self, channel: Channel, handler: RequestHandler, *, of_guests: bool = False) -> None:
        """``of_guests``: also of nodes that do not belong to the cluster yet."""
        self._local.channels.answer_requests(channel, handler, of_guests=of_guests)

    async def start(self, listen: Address, advertised: Address | None = None) -> None:
        """Listen, on any free port where it is 0, and dial the peers."""
        if advertised is None and listen.host in _WILDCARD_HOSTS:
            raise QuorateError(
                f"the peer listener is bound to every interface ({listen.host!r}): "
                "say which address the peers should dial"
            )
        try:
            await self._listener.start(listen.host, listen.port)
        except OSError as error:
            raise listen_error(listen, error, "for peers") from None
        self._running = True
        self._update_links()

    async def stop(self, grace_ms: int = 200) -> None:
        """Close every connection, with a moment for what was sent last to leave."""
        self._running = False
        closing: list[DialledConnection | AcceptedConnection] = [*self._listener.close("the node stops")]
        links, self._links = self._links, {}
        closing += filter(None, [link.close("the node stops") for link in links.values()])
        if closing:
            await asyncio.wait([connection.closed for connection in closing], timeout=grace_ms / 1000)
        for connection in closing:
            connection.abort("the node stops")
        await asyncio.sleep(0)

    def set_peers(self, addresses: Mapping[NodeId, Address]) -> None:
        """Whom to keep a link to, and where. Links to others are closed, those whose address changed dialled anew."""
        self._addresses = {node_id: at for node_id, at in addresses.items() if node_id != self._local.identity.node_id}
        self._update_links()

    def use_credentials(self, credentials: PeerCredentials) -> None:
        """From now on these are shown and asked for. Connections that rest on what counts no more end."""
        self._local.credentials = credentials
        self.review()

    def review(self) -> None:
        """More may be known of the peers than when they introduced themselves: end what would not be let in now."""
        self._listener.review()
        for link in self._links.values():
            link.drop_stranger()

    def send(self, channel: Channel, node_id: NodeId, payload: Payload) -> bool:
        """Queue a message; False if it was dropped, because there is no link or its queue is full.

        The buffers are not copied: leave them as they are.
        """
        link = self._links.get(node_id)
        if link is None or not link.is_connected:
            return self._listener.send(node_id, channel, payload)
        return link.send(channel, payload)

    async def request(self, channel: Channel, node_id: NodeId, payload: Payload, timeout_ms: float) -> bytes:
        """The peer's answer; ``PeerUnreachable`` if it was not sent, ``OutcomeUnknown`` if it may have been."""
        return await self.request_and_read(channel, node_id, payload, timeout_ms, bytes)

    async def request_and_read(
        self,
        channel: Channel,
        node_id: NodeId,
        payload: Payload,
        timeout_ms: float,
        read: Callable[[memoryview], Answer],
    ) -> Answer:
        """The same, for what ``read`` makes of the answer as it comes: the view holds no longer than that."""
        link = self._links.get(node_id)
        if link is None:
            raise PeerUnreachable(f"node {node_id} is not a known peer")
        return await link.request(channel, payload, timeout_ms, read)

    def is_connected(self, node_id: NodeId) -> bool:
        link = self._links.get(node_id)
        return link is not None and link.is_connected

    def is_refusing(self, node_id: NodeId) -> bool:
        """Whether the last attempt to dial the peer met no process that listens."""
        link = self._links.get(node_id)
        return link is not None and link.is_refusing

    def _update_links(self) -> None:
        if not self._running:
            return
        for node_id, link in list(self._links.items()):
            if self._addresses.get(node_id) != link.address:
                self._links.pop(node_id).close("the peer was removed or has moved")
        for node_id, address in self._addresses.items():
            if node_id not in self._links:
                self._links[node_id] = PeerLink(self._local, node_id, address)

    def _introduced(self, hello: Hello) -> None:
        link = self._links.get(hello.node_id)
        if link is not None:
            link.peer_is_up()
