"""This node as its peers see it, and what all its connections to them share."""

import asyncio
from random import Random

from quorate.kernel.ids import NO_DIRECTORY, NodeId
from quorate.security.peer_handshake import NONCE_BYTES
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.channels import Channels, LinkWatcher, Nobody, PeerDirectory
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.hello import Hello, RefusalLog, Rejection, objection
from quorate.transport.receive_memory import ReceiveMemory
from quorate.transport.tls_layer import ENCRYPTED_READ_BYTES


class LocalPeer:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        identity: PeerIdentity,
        config: PeerConfig,
        credentials: PeerCredentials,
    ) -> None:
        self.loop = loop
        self.random = random
        #: What peers have to show, and are shown.
        self.credentials = credentials
        #: What all TLS connections read into.
        self.encrypted = memoryview(bytearray(0 if credentials.tls is None else ENCRYPTED_READ_BYTES))
        #: And what all connections read into in the clear: few of them have a frame in part at any time.
        self.received = ReceiveMemory()
        self.identity = identity
        self.config = config
        self.directory: PeerDirectory = Nobody()
        self.channels = Channels()
        #: In the order in which they are told.
        self.watchers: list[LinkWatcher] = []
        self.refusals = RefusalLog(identity, loop.time)

    def new_nonce(self) -> bytes:
        return self.random.randbytes(NONCE_BYTES)

    def hello_to(self, node_id: NodeId, *, is_known: bool = True) -> Hello:
        return Hello(
            cluster_id=self.identity.cluster_id,
            node_id=self.identity.node_id,
            target_id=node_id,
            incarnation=self.identity.incarnation,
            directory_id=self.identity.directory_id if is_known else NO_DIRECTORY,
            target_directory_id=self.directory.directory_of(node_id) if is_known else NO_DIRECTORY,
        )

    def objection(self, hello: Hello, expected: NodeId | None = None) -> Rejection | None:
        return objection(hello, self.identity, expected, self.directory.directory_of(hello.node_id))

    def is_known(self, hello: Hello) -> bool:
        """Whether the sender belongs to the cluster: its metadata has it, or it knows this node by its data folder.

        The latter is for who joined while this node was away, as it cannot have heard of that.
        """
        names_this_folder = hello.target_directory_id == self.identity.directory_id != NO_DIRECTORY
        return names_this_folder or self.directory.knows(hello.node_id)
