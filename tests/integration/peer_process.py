"""A process that does nothing but listen for its peers and answer them. Run by the tests, to be killed."""

import asyncio
import sys
from random import Random

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.channels import PeerAnswer, Sender
from quorate.transport.peers.config import Address, PeerConfig, PeerIdentity
from tests.integration.peer_nodes import ASK, SAY


class Answering:
    """Answers each request with its own payload, but never those that start with ``hang``."""

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        return NO_DIRECTORY

    def message_received(self, sender: NodeId, payload: memoryview) -> None:
        pass

    def knows(self, node_id: NodeId) -> bool:
        return True

    def request_received(self, sender: Sender, payload: bytes) -> PeerAnswer:
        return asyncio.get_running_loop().create_future() if payload.startswith(b"hang") else payload


async def serve(node_id: NodeId, cluster_id: str) -> None:
    identity = PeerIdentity(node_id=node_id, cluster_id=cluster_id, incarnation=1, directory_id=NO_DIRECTORY)
    answering = Answering()
    peers = PeerBus(asyncio.get_running_loop(), Random(1), identity, PeerConfig())
    peers.know_by(answering)
    peers.take_messages(SAY, answering.message_received)
    peers.answer_requests(ASK, answering.request_received)
    await peers.start(Address("127.0.0.1", 0))
    print(peers.port, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(NodeId(int(sys.argv[1])), sys.argv[2]))
