"""Nodes that talk to each other over real loopback connections, and a scripted end in a node's place."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random

from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId
from quorate.security.peer_tls import PeerCredentials
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.channels import PeerAnswer, Sender
from quorate.transport.peers.config import Address, PeerConfig, PeerIdentity
from quorate.transport.peers.errors import PeerProtocolError
from quorate.transport.peers.frames import Channel, FrameKind, encode_frame
from quorate.transport.peers.hello import Hello, decode_hello, encode_hello

CLUSTER = "blue"
LOOPBACK = "127.0.0.1"
#: On which the nodes of these tests send messages, and on which they ask each other.
SAY, ASK = Channel.RAFT, Channel.CONTROLLER


class Node:
    """A node of one test: its peer bus, and all that it was told."""

    def __init__(
        self,
        node_id: int,
        *,
        cluster_id: str = CLUSTER,
        incarnation: int = 1,
        directory_id: DirectoryId = NO_DIRECTORY,
        config: PeerConfig | None = None,
        credentials: PeerCredentials | None = None,
    ) -> None:
        self.node_id = NodeId(node_id)
        self.messages: list[tuple[int, bytes]] = []
        self.events: list[tuple[object, ...]] = []
        self.unanswered: list[asyncio.Future[bytes]] = []
        #: Who has asked for something, and whether it was known.
        self.asked_by: list[tuple[int, bool]] = []
        #: What it is told of its links is more than it can take.
        self.fails_when_told = False
        #: Nodes that the cluster's metadata does not have.
        self.strangers: set[int] = set()
        self._changed = asyncio.Event()
        #: By which the cluster knows other nodes.
        self.directories: dict[NodeId, DirectoryId] = {}
        identity = PeerIdentity(
            node_id=self.node_id, cluster_id=cluster_id, incarnation=incarnation, directory_id=directory_id
        )
        loop = asyncio.get_running_loop()
        self.peers = PeerBus(loop, Random(node_id), identity, config or PeerConfig(), credentials)
        self.peers.know_by(self)
        self.peers.watch_links(self)
        self.peers.take_messages(SAY, self.message_received)
        self.peers.answer_requests(ASK, self.request_received, of_guests=True)

    @property
    def address(self) -> Address:
        return Address(host=LOOPBACK, port=self.peers.port)

    async def until(self, condition: Callable[[], bool], what: str, within_s: float = 20) -> None:
        """Wait for a condition that changes with what this node is told."""
        try:
            async with asyncio.timeout(within_s):
                while not condition():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"still waiting for {what}; told: {self.events}") from None

    async def until_connected(self, other: int) -> None:
        await self.until(lambda: self.peers.is_connected(NodeId(other)), f"a link to {other}")

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        return self.directories.get(node_id, NO_DIRECTORY)

    def message_received(self, sender: NodeId, payload: memoryview) -> None:
        self.messages.append((sender, bytes(payload)))
        self._changed.set()

    def knows(self, node_id: NodeId) -> bool:
        return node_id not in self.strangers

    def request_received(self, sender: Sender, payload: bytes) -> PeerAnswer:
        self.asked_by.append(sender)
        if payload == b"insane":
            raise PeerProtocolError("no sound node asks for this")
        if payload == b"raise":
            raise ValueError("no such thing")
        if payload.startswith(b"hang"):
            self.unanswered.append(asyncio.get_running_loop().create_future())
            self._changed.set()
            return self.unanswered[-1]
        if payload.startswith(b"later"):
            return self._answer_later(payload)
        return payload

    async def _answer_later(self, payload: bytes) -> bytes:
        await asyncio.sleep(0.02)
        return payload

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:
        self._told("connected", node_id, incarnation)

    def peer_connection_lost(self, node_id: NodeId) -> None:
        self._told("lost", node_id)

    def peer_died(self, node_id: NodeId) -> None:
        self._told("died", node_id)

    def _told(self, *event: object) -> None:
        self.events.append(event)
        if self.fails_when_told:
            asyncio.get_running_loop().call_soon(self._changed.set)
            raise RuntimeError(f"told: {event}")
        self._changed.set()


@asynccontextmanager
async def running(*nodes: Node, linked: bool = True) -> AsyncIterator[None]:
    """The nodes, listening, and with all their links up unless they are not to be linked."""
    for node in nodes:
        await node.peers.start(Address(LOOPBACK, 0))
    try:
        if linked:
            addresses = {node.node_id: node.address for node in nodes}
            for node in nodes:
                node.peers.set_peers(addresses)
            for node in nodes:
                for other in addresses.keys() - {node.node_id}:
                    await node.until_connected(other)
        yield
    finally:
        for node in nodes:
            await node.peers.stop()


class ScriptedPeer:
    """Listens in a node's place: introduces itself properly, then does what the test says."""

    def __init__(self, node_id: int, script: "Script") -> None:
        self._node_id = NodeId(node_id)
        self._script = script
        self.connections = 0

    async def __aenter__(self) -> Address:
        self._server = await asyncio.start_server(self._serve, LOOPBACK, 0)
        return Address(host=LOOPBACK, port=self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            _, body = await read_frame(reader)
            hello = decode_hello(memoryview(body))
            assert isinstance(hello, Hello)
            answer = new_hello(self._node_id, hello.node_id)
            writer.writelines(encode_frame(FrameKind.HELLO, [encode_hello(answer)]))
            await self._script(reader, writer)
        finally:
            writer.close()


Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def new_hello(
    node_id: int,
    target_id: int,
    cluster_id: str = CLUSTER,
    directory_id: DirectoryId = NO_DIRECTORY,
    target_directory_id: DirectoryId = NO_DIRECTORY,
) -> Hello:
    return Hello(
        cluster_id=cluster_id,
        node_id=NodeId(node_id),
        target_id=NodeId(target_id),
        incarnation=1,
        directory_id=directory_id,
        target_directory_id=target_directory_id,
    )


async def read_frame(reader: asyncio.StreamReader) -> tuple[FrameKind, bytes]:
    length = int.from_bytes(await reader.readexactly(4), "big")
    frame = await reader.readexactly(length)
    return FrameKind(frame[0]), frame[1:]
