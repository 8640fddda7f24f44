"""A stranger in the network: it hears what nodes say to each other, and says all that it can to their peer ports.

It knows everything but the secret: cluster and node ids, data folders, terms, and what the secret was before it was
replaced. Whatever it does, no node lets it in and none tells it anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

from quorate.kernel.ids import NO_DIRECTORY, NodeId, Offset, Term
from quorate.quorum.core.messages import Heartbeat, Message, TermNotice, TimeoutNow, VoteRequest, encode_message
from quorate.security.peer_handshake import NONCE_BYTES, ClusterSecrets, DialingPeer
from quorate.transport.peers import frames
from quorate.transport.peers.frames import Channel, FrameKind, encode_frame
from quorate.transport.peers.hello import Hello, RejectReason, decode_rejection, encode_hello
from quorate.transport.peers.listener import AcceptedConnection, PeerListener
from tests.simulation.cluster.cluster import PEER_PORT, Member, SimulatedCluster
from tests.simulation.world.transport import Data, SimulatedTransport

ADDRESS = "10.0.9.66"
#: Of a conversation, and of conversations, so much is remembered.
_MAX_RECORDED_BYTES = 50_000
_MAX_RECORDED = 30
_PATIENCE_S = 0.5
_CROWD = 150
_NONCE_FRAME_BYTES = 5 + 5 + NONCE_BYTES

Trick = Callable[[Member], Awaitable[None]]


class Stranger:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.host = cluster.world.add_host("stranger", ADDRESS)
        self._random = cluster.world.random
        #: What nodes have said on connections that they dialled.
        self._recorded: dict[str, bytearray] = {}
        self.tries = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear every byte, and be told by the checker where a node takes this one for another."""
        write, introduced = SimulatedTransport.write, PeerListener.peer_introduced

        def overheard(transport: SimulatedTransport, data: Data) -> None:
            if transport.get_extra_info("peername")[1] == PEER_PORT:
                self._record(transport.label, bytes(data))
            write(transport, data)

        def watched(listener: PeerListener, connection: AcceptedConnection, hello: Hello) -> None:
            if connection.remote_host == ADDRESS:
                self._cluster.findings.report("strangers stay out", f"one was let in as node {hello.node_id}")
            introduced(listener, connection, hello)

        with (
            patch.object(SimulatedTransport, "write", overheard),
            patch.object(PeerListener, "peer_introduced", watched),
        ):
            yield

    async def run(self, is_over: Callable[[], bool]) -> None:
        tricks: tuple[Trick, ...] = (
            self._replay,
            self._replay_in_turn,
            self._forge,
            self._forge_with_own_secret,
            self._reflect,
        )
        while not is_over():
            member = self._random.choice(self._cluster.present)
            former = self._former_secret(member)
            more: list[Trick] = [] if former is None else [partial(self._forge_with, former)] * 3
            trick = self._random.choice((*tricks, *tricks, self._crowd_in, *more))
            with suppress(OSError, TimeoutError):
                await trick(member)
            self.tries += 1
            await self._cluster.world.sleep(self._random.random() * 0.4)

    def _record(self, label: str, data: bytes) -> None:
        if label.startswith(ADDRESS):
            return
        conversation = self._recorded.setdefault(label, bytearray())
        if len(conversation) < _MAX_RECORDED_BYTES:
            conversation += data
        if len(self._recorded) > _MAX_RECORDED:
            del self._recorded[next(iter(self._recorded))]

    def _conversation(self) -> bytes:
        return bytes(self._random.choice(list(self._recorded.values()))) if self._recorded else b""

    async def _replay(self, member: Member) -> None:
        await self._say(member, [self._conversation()])

    async def _replay_in_turn(self, member: Member) -> None:
        """Frame by frame, each when something has come back."""
        await self._say(member, _split(self._conversation())[:20])

    async def _forge(self, member: Member) -> None:
        """As another node, whose every number it knows, but for the proof."""
        await self._say(member, [self._hello(member), *self._messages(member)])

    async def _forge_with_own_secret(self, member: Member) -> None:
        await self._forge_with(ClusterSecrets(["a-secret-that-the-stranger-has-made"]), member)

    def _former_secret(self, member: Member) -> ClusterSecrets | None:
        """Which the node does not take any more."""
        former, node = self._cluster.former_secret, member.running_node
        if former is None or node is None or node.peers.credentials.secrets is None:
            return None
        secrets = ClusterSecrets([former])
        is_taken = set(secrets.keys("peers")) & set(node.peers.credentials.secrets.keys("peers"))
        return None if is_taken else secrets

    async def _forge_with(self, secrets: ClusterSecrets, member: Member) -> None:
        dialing = DialingPeer(secrets, self._another(member), member.node_id, self._random.randbytes(NONCE_BYTES))
        end = await self._connect(member)
        end.write(_step(dialing.opening()))
        await end.heard_something()
        if len(end.heard) == _NONCE_FRAME_BYTES:
            proof = dialing.receive(bytes(end.heard[5:]))
            assert isinstance(proof, bytes)
            end.write(_step(proof))
            for frame in (self._hello(member), *self._messages(member)):
                end.write(frame)
        await self._leave(member, end)

    async def _reflect(self, member: Member) -> None:
        """What one connection says goes back on it, and on to another node."""
        other = self._random.choice(self._cluster.present)
        ends = [await self._connect(member), await self._connect(other)]
        ends[0].write(_step(b"QPH\0\x01" + self._random.randbytes(NONCE_BYTES)))
        await ends[0].heard_something()
        for end in ends:
            end.write(bytes(ends[0].heard))
            await end.heard_something()
        ends[0].write(bytes(ends[1].heard))
        for end, of in zip(ends, (member, other), strict=True):
            await self._leave(of, end)

    async def _crowd_in(self, member: Member) -> None:
        ends = []
        for _ in range(_CROWD):
            end = await self._connect(member)
            end.write(_step(b"QPH\0\x01" + self._random.randbytes(NONCE_BYTES))[: self._random.randint(0, 50)])
            ends.append(end)
        await self._cluster.world.sleep(self._random.random() * 3)
        for end in ends:
            end.close()

    async def _say(self, member: Member, frames: list[bytes]) -> None:
        end = await self._connect(member)
        for frame in frames:
            end.write(frame)
            if self._random.random() < 0.5:
                await end.heard_something()
        await self._leave(member, end)

    async def _connect(self, member: Member) -> "_End":
        async with asyncio.timeout(_PATIENCE_S):
            _, end = await asyncio.get_running_loop().create_connection(_End, member.host.address, PEER_PORT)
        assert isinstance(end, _End)
        return end

    async def _leave(self, member: Member, end: "_End") -> None:
        await end.ended(_PATIENCE_S)
        end.close()
        for frame in _split(bytes(end.heard)):
            if not _is_harmless(frame):
                self._cluster.findings.report(
                    "strangers hear nothing", f"node {member.node_id} told one {frame[:100]!r}"
                )

    def _another(self, member: Member) -> NodeId:
        others = [each.node_id for each in self._cluster.members if each is not member]
        return self._random.choice(others) if others else NodeId(666)

    def _hello(self, member: Member) -> bytes:
        sender, brokers = self._another(member), self._cluster.truth.latest.brokers
        directories = {node_id: broker.directory_id for node_id, broker in brokers.items()}
        hello = Hello(
            cluster_id="simulated",
            node_id=sender,
            target_id=member.node_id,
            incarnation=self._random.getrandbits(60),
            directory_id=directories.get(sender, NO_DIRECTORY),
            target_directory_id=directories.get(member.node_id, NO_DIRECTORY),
        )
        return b"".join(encode_frame(FrameKind.HELLO, [encode_hello(hello)]))

    def _messages(self, member: Member) -> list[bytes]:
        """A next term, and votes asked for in it: what would set off an election, were it listened to."""
        leader = self._cluster.leader()
        term = Term((0 if leader is None or leader.node is None else leader.node.quorum.driver.state.term) + 1)
        said: dict[str, Any] = {"term": term, "sender": self._another(member), "receiver": member.node_id}
        end = Offset(1_000_000)
        vote = VoteRequest(is_pre_vote=False, is_transfer=True, log_end_offset=end, last_term=term, **said)
        heartbeat = Heartbeat(high_watermark=Offset(0), read_round=0, **said)
        messages: list[Message] = [TermNotice(**said), vote, TimeoutNow(**said), heartbeat]
        return [b"".join(frames.encode_message(Channel.RAFT, [encode_message(message)])) for message in messages]


class _End(asyncio.Protocol):
    def __init__(self) -> None:
        self.heard = bytearray()
        self._changed = asyncio.Event()
        self._is_over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.heard += data
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._changed.set()

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def close(self) -> None:
        self._transport.abort()

    async def heard_something(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_S):
                await self._changed.wait()
        if not self._is_over:
            self._changed.clear()

    async def ended(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while not self._is_over:
                    self._changed.clear()
                    await self._changed.wait()


def _step(body: bytes) -> bytes:
    return b"".join(encode_frame(FrameKind.AUTHENTICATE, [body]))


def _split(said: bytes) -> list[bytes]:
    """Frames with their lengths; what is no whole frame at the end is one."""
    frames, at = [], 0
    while at < len(said):
        end = at + 4 + int.from_bytes(said[at : at + 4])
        frames.append(said[at:end])
        at = end
    return frames


def _is_harmless(frame: bytes) -> bool:
    if frame[4:5] == bytes([FrameKind.AUTHENTICATE]):
        return len(frame) == _NONCE_FRAME_BYTES
    if frame[4:5] == bytes([FrameKind.REJECT]):
        return decode_rejection(memoryview(frame)[5:]).reason == RejectReason.UNAUTHENTICATED
    return False
