"""What the parts of a node register with its peer bus: who takes a channel, who knows the peers, who watches the links.

A request on a channel that nobody answers yet is refused as by a node that cannot be reached: the asker tries again.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.errors import PeerProtocolError, PeerUnreachable
from quorate.transport.peers.frames import Channel, Payload


class Sender(NamedTuple):
    node_id: NodeId
    #: Whether it belongs to the cluster.
    is_known: bool


#: Takes a message; the view is only valid until the call returns. A ``PeerProtocolError``, here and from a request
#: handler or its answer, ends the connection.
MessageHandler = Callable[[NodeId, memoryview], None]
#: Now, or later. What answers later is cancelled when the connection ends: nobody waits for it any more.
PeerAnswer = Payload | Coroutine[Any, Any, Payload] | asyncio.Future[Any]
RequestHandler = Callable[[Sender, bytes], PeerAnswer]


class PeerDirectory(Protocol):
    """What the cluster knows of its nodes. It is asked as soon as a peer introduces itself."""

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """The data folder that the cluster knows the peer by, or ``NO_DIRECTORY``."""
        ...

    def knows(self, node_id: NodeId) -> bool:
        """Whether the cluster's metadata has the node."""
        ...


class LinkWatcher(Protocol):
    """Told on the loop, in the order of events; must not block."""

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:
        """The link to a peer is up: what is sent from now on goes out."""
        ...

    def peer_connection_lost(self, node_id: NodeId) -> None:
        """The link ended; the process may live."""
        ...

    def peer_died(self, node_id: NodeId) -> None:
        """Its link had ended, and then no process listened there. Told once, after ``peer_connection_lost``."""
        ...


class Nobody:
    """The directory of a node that has not said whom it knows."""

    def directory_of(self, node_id: NodeId) -> DirectoryId:  # noqa: ARG002
        return NO_DIRECTORY

    def knows(self, node_id: NodeId) -> bool:  # noqa: ARG002
        return False


class Channels:
    """Who takes what comes in on each channel."""

    def __init__(self) -> None:
        self._messages: dict[Channel, MessageHandler] = {}
        self._requests: dict[Channel, RequestHandler] = {}
        self._of_guests: set[Channel] = set()

    def take_messages(self, channel: Channel, handler: MessageHandler) -> None:
        self._messages[channel] = handler

    def answer_requests(self, channel: Channel, handler: RequestHandler, *, of_guests: bool) -> None:
        self._requests[channel] = handler
        if of_guests:
            self._of_guests.add(channel)

    def message_received(self, sender: NodeId, channel: Channel, payload: memoryview) -> None:
        handler = self._messages.get(channel)
        if handler is None:
            raise PeerProtocolError(f"no node sends messages on the channel {channel.name}")
        handler(sender, payload)

    def request_received(self, sender: Sender, channel: Channel, payload: bytes) -> PeerAnswer:
        if not sender.is_known and channel not in self._of_guests:
            raise PeerUnreachable(f"node {sender.node_id} is not known here")
        handler = self._requests.get(channel)
        if handler is None:
            raise PeerUnreachable(f"this node does not answer on the channel {channel.name} yet")
        return handler(sender, payload)
