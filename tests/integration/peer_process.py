"""A process that does nothing but listen for its peers and answer them. Run by the tests, to be killed."""

import asyncio
import sys
from collections.abc import Awaitable
from random import Random

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.peers import Peers


class Answering:
    """Answers each request with its own payload, but never those that start with ``hang``."""

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        return NO_DIRECTORY

    def message_received(self, sender: NodeId, payload: memoryview) -> None:
        pass

    def knows(self, node_id: NodeId) -> bool:
        return True

    def request_received(self, sender: NodeId, payload: bytes, *, is_known: bool) -> bytes | Awaitable[bytes]:
        return asyncio.get_running_loop().create_future() if payload.startswith(b"hang") else payload

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:
        pass

    def peer_connection_lost(self, node_id: NodeId, refused: bool) -> None:
        pass


async def serve(node_id: NodeId, cluster_id: str) -> None:
    identity = PeerIdentity(node_id=node_id, cluster_id=cluster_id, incarnation=1, directory_id=NO_DIRECTORY)
    peers = Peers(asyncio.get_running_loop(), Random(1), identity, PeerConfig(), Answering())
    await peers.start("127.0.0.1", 0)
    print(peers.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(NodeId(int(sys.argv[1])), sys.argv[2]))
