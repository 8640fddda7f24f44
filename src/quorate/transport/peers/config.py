"""Who a node is to its peers, where they are, and the limits of talking to them."""

import msgspec

from quorate.kernel.address import Address
from quorate.kernel.ids import DirectoryId, NodeId

__all__ = ["Address", "PeerConfig", "PeerIdentity"]


class PeerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    cluster_id: str
    #: A new number for each start of the process: tells a restart from a connection that was only reset.
    incarnation: int
    directory_id: DirectoryId


class PeerConfig(msgspec.Struct, frozen=True, kw_only=True):
    reconnect_backoff_min_ms: int = 20
    reconnect_backoff_max_ms: int = 1000
    #: For the connection and both hellos.
    connect_timeout_ms: int = 2000
    #: What may wait for one peer; the last message let in may go beyond it, so that any legal one fits.
    queue_max_bytes: int = 16 * 1024 * 1024
    queue_max_messages: int = 10_000
    #: Of a payload, without its header.
    max_frame_bytes: int = 64 * 1024 * 1024
    max_requests_in_flight: int = 1024
    #: Connections that have not introduced themselves yet; the oldest gives way.
    max_unintroduced: int = 128
    #: Nodes that introduced themselves but are not known: they can only ask to join. The oldest gives way.
    max_guests: int = 64
    guest_max_frame_bytes: int = 64 * 1024
    guest_max_requests_in_flight: int = 8
    ping_interval_ms: int = 1000
    #: A connection on which nothing came for this long is given up.
    silence_timeout_ms: int = 5_000

    def with_strangers(self, most: int | None) -> "PeerConfig":
        """With no more connections of strangers than there are descriptors for."""
        if most is None:
            return self
        return msgspec.structs.replace(
            self,
            max_unintroduced=max(1, min(self.max_unintroduced, most * 2 // 3)),
            max_guests=max(1, min(self.max_guests, most // 3)),
        )
