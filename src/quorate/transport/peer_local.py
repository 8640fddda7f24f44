"""This node as its peers see it, and what all its connections to them share."""

import asyncio

from quorate.kernel.ids import NodeId
from quorate.transport.peer_config import Address, PeerConfig, PeerIdentity
from quorate.transport.peer_handler import PeerHandler
from quorate.transport.peer_hello import Hello, Rejection, objection
from quorate.transport.peer_refusals import RefusalLog


class LocalPeer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        identity: PeerIdentity,
        config: PeerConfig,
        handler: PeerHandler,
    ) -> None:
        self.loop = loop
        self.identity = identity
        self.config = config
        self.handler = handler
        self.refusals = RefusalLog(identity.node_id)
        #: Where its peers should dial it; known once it listens.
        self.address = Address(host="", port=0)

    def hello_to(self, node_id: NodeId) -> Hello:
        return Hello(
            cluster_id=self.identity.cluster_id,
            node_id=self.identity.node_id,
            target_id=node_id,
            incarnation=self.identity.incarnation,
            directory_id=self.identity.directory_id,
            address=self.address,
        )

    def objection(self, hello: Hello, expected: NodeId | None = None) -> Rejection | None:
        return objection(hello, self.identity, expected, self.handler.directory_of(hello.node_id))
