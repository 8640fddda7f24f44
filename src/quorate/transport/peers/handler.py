"""What the layer above is told by the peer transport."""

from collections.abc import Awaitable
from typing import Protocol

from quorate.kernel.ids import DirectoryId, NodeId
from quorate.transport.peers.stream import Payload


class PeerHandler(Protocol):
    """Called on the loop, in the order of events; must not block."""

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """The data folder that the cluster knows the peer by, or ``NO_DIRECTORY``."""
        ...

    def knows(self, node_id: NodeId) -> bool:
        """Whether the cluster's metadata has the node."""
        ...

    def message_received(self, sender: NodeId, payload: memoryview) -> None:
        """Take a message of a node that is known. The view is only valid until this call returns.

        A ``PeerProtocolError``, here and from ``request_received`` or its answer, ends the connection.
        """
        ...

    def request_received(self, sender: NodeId, payload: bytes, *, is_known: bool) -> Payload | Awaitable[Payload]:
        """Answer now or later. An awaitable is cancelled when the connection ends: nobody waits for it any more."""
        ...

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:
        """The link to a peer is up: what is sent from now on goes out."""
        ...

    def peer_connection_lost(self, node_id: NodeId, refused: bool) -> None:
        """The link ended. Called again with ``refused``, once, if dialling anew finds that no process listens there."""
        ...
