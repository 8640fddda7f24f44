"""A node that is a quorum by itself: the real log, driver, store and leadership, with no peers but made-up ones."""

import asyncio
from random import Random
from uuid import UUID

from quorate.kernel.ids import NO_DIRECTORY, BrokerEpoch, DirectoryId, NodeId, Offset
from quorate.metadata.core import commands as c
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Broker
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.leader_requests import BrokerHeartbeat, HeartbeatAnswer, LeaderAnswer, LeaderRequest
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import QuorumState
from quorate.quorum.leader_calls import LeaderCalls
from quorate.quorum.leadership import Leadership, Predecessor
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.raft_driver import RaftDriver
from quorate.transport.peers.errors import PeerUnreachable
from quorate.transport.peers.frames import Channel
from tests.simulation.disk import SimulatedDisk
from tests.unit.quorum.driven_node import HeldWork, until
from tests.unit.quorum.quorum_disk import StoppedClock, open_storage

ME = NodeId(1)
SESSION_TIMEOUT_S = 9


class Neighbourhood:
    def __init__(self) -> None:
        self.refusing: set[int] = set()

    def is_refusing(self, node_id: NodeId) -> bool:
        return node_id in self.refusing

    def is_connected(self, node_id: NodeId) -> bool:
        del node_id
        return False

    async def request(self, channel: Channel, node_id: NodeId, payload: bytes, timeout_ms: float) -> bytes:
        del channel, payload, timeout_ms
        raise PeerUnreachable(f"node {node_id} is not connected")


class LeadingNode:
    def __init__(self, disk: SimulatedDisk, *, entries_between_snapshots: int = 1_000, **configs: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._uuids = Random(5)
        self.neighbours = Neighbourhood()
        self.executor = HeldWork()
        self.calls = LeaderCalls(
            ME,
            self.neighbours,
            loop=self._loop,
            random=Random(1),
            known_nodes=list,
            known_leader=lambda: self.driver.state.leader,
            answer=self._decide,
            on_referral=lambda *_: None,
        )
        self.store = QuorumMetadataStore(self.calls, self._loop, self.new_uuid)
        self.driver = self._make_driver(disk, entries_between_snapshots)
        static = {name.replace("_", "."): value for name, value in configs.items()}
        self.leadership = Leadership(
            ME,
            "cluster",
            Controller(BrokerView(node_id=ME, static_configs=static), self.new_uuid, lambda: 0),
            self.store,
            self.driver,
            neighbours=self.neighbours,
            session_timeout_ms=SESSION_TIMEOUT_S * 1000,
            loop=self._loop,
            executor=self.executor,
        )

    async def _decide(self, request: LeaderRequest) -> LeaderAnswer:
        return await self.leadership.answer(request)

    def _make_driver(self, disk: SimulatedDisk, entries_between_snapshots: int) -> RaftDriver:
        storage = open_storage(disk)
        restored = storage.restore()
        if restored.snapshot is not None:
            self.store.install(restored.snapshot)
        raft = RaftNode(
            node_id=ME,
            config=RaftConfig(),
            jitter=lambda: 0.5,
            now_ms=round(self._loop.time() * 1000),
            bootstrap=Membership.of([Member(ME, "", is_voter=True)]),
            hard_state=restored.hard_state,
            snapshot=restored.snapshot,
            entries=restored.entries,
        )
        return RaftDriver(
            raft,
            storage,
            self.store,
            loop=self._loop,
            executor=self.executor,
            send=lambda _: None,
            clock=StoppedClock(),
            on_state=self._state_changed,
            on_membership=lambda _: None,
            on_failure=self._fail,
            on_recovered=lambda: None,
            entries_between_snapshots=entries_between_snapshots,
        )

    def _state_changed(self, state: QuorumState) -> None:
        if state.can_decide:
            assert state.leader is not None
            self.leadership.begin(state.leader)
        else:
            self.leadership.end()
        self.calls.leader_changed()

    def _fail(self, error: Exception) -> None:
        raise AssertionError("the node failed") from error

    def new_uuid(self) -> UUID:
        return UUID(int=self._uuids.getrandbits(128), version=4)

    async def start(self) -> None:
        self.driver.start()
        while not self.driver.state.can_decide:
            await self.pass_time(0.001)
        await self.pass_time(0.001)

    async def stop(self) -> None:
        self.leadership.stop()
        await self.driver.stop()

    async def pass_time(self, seconds: float) -> None:
        await until(self._loop.time() + seconds)

    def lose_and_regain_leadership(self, *, from_silent: int | None = None, silent_for_s: float = 0) -> None:
        leader = self.driver.state.leader
        assert leader is not None
        predecessor = None
        if from_silent is not None:
            predecessor = Predecessor(NodeId(from_silent), round((self._loop.time() - silent_for_s) * 1000))
        self.leadership.end()
        self.leadership.begin(leader, predecessor)

    def broker(self, node_id: int) -> Broker:
        return self.store.image.brokers[NodeId(node_id)]

    def live(self) -> list[int]:
        return sorted(broker.node_id for broker in self.store.image.live_brokers)

    async def register(
        self, node_id: int, peer_address: str = "", directory_id: DirectoryId = NO_DIRECTORY
    ) -> BrokerEpoch:
        command = c.RegisterBroker(
            node_id=NodeId(node_id),
            host="host",
            port=9092,
            incarnation=self.new_uuid(),
            directory_id=directory_id,
            peer_address=peer_address,
        )
        epoch = (await self.store.submit_one(command)).broker_epoch
        assert epoch is not None
        return epoch

    async def beat(
        self, node_id: int, *, epoch: int | None = None, version: int | None = None, wants_to_stop: bool = False
    ) -> HeartbeatAnswer:
        """As the broker would: it has seen all there is, unless a version is named."""
        answer = await self.leadership.answer(
            BrokerHeartbeat(
                node_id=NodeId(node_id),
                broker_epoch=BrokerEpoch(self.broker(node_id).broker_epoch if epoch is None else epoch),
                metadata_version=Offset(self.store.image.version if version is None else version),
                wants_to_stop=wants_to_stop,
            )
        )
        assert isinstance(answer, HeartbeatAnswer)
        return answer

    async def bring_up(self, *node_ids: int) -> None:
        for node_id in node_ids:
            await self.register(node_id)
            await self.beat(node_id)
            assert node_id in self.live()
