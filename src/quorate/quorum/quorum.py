"""A node's part in the quorum, composed: the log on disk, the Raft core, the metadata, the leader's work.

On the peer bus it says who the nodes of the cluster are, and takes the channels ``RAFT`` and ``CONTROLLER``.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from random import Random
from uuid import UUID

import msgspec

from quorate.kernel.address import Address, parse_address
from quorate.kernel.conditions import Conditions
from quorate.kernel.ids import NO_DIRECTORY, DirectoryId, NodeId, QuorumLeader
from quorate.kernel.ports import Clock
from quorate.kernel.tasks import monotonic_ms
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.image import Broker, Delta, MetadataImage
from quorate.metadata.store import DepartedBrokers, LeadershipUncertainty
from quorate.quorum.config import QuorumConfig
from quorate.quorum.core.config import RaftConfig
from quorate.quorum.core.leader_requests import LeaderAnswer, LeaderRequest, Redirect, encode
from quorate.quorum.core.membership import Member, Membership
from quorate.quorum.core.messages import Message, encode_message
from quorate.quorum.core.node import RaftNode
from quorate.quorum.core.ready import QuorumState
from quorate.quorum.core.sanity import is_address
from quorate.quorum.damage_report import FileCheck, RecoveryReport, tell_findings
from quorate.quorum.doubled_file import Finding
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.leader_calls import LeaderCalls
from quorate.quorum.leadership import Leadership, Predecessor
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.peer_checks import check_metadata, read_message, read_request
from quorate.quorum.raft_driver import RaftDriver
from quorate.quorum.raft_storage import RaftStorage
from quorate.quorum.upkeep import AutomaticBalance, BalanceConfig
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.channels import Sender
from quorate.transport.peers.errors import OutcomeUnknown, PeerProtocolError
from quorate.transport.peers.frames import Channel

logger = logging.getLogger(__name__)


class QuorumEnvironment(msgspec.Struct, frozen=True, kw_only=True):
    loop: asyncio.AbstractEventLoop
    clock: Clock
    #: For the metadata log alone.
    executor: Executor
    #: For what computes for long.
    workers: Executor
    random: Random
    conditions: Conditions
    #: Told when this node cannot go on: its disk failed, or an invariant is broken.
    on_failure: Callable[[Exception], None]


class AgreedAddresses:
    def __init__(self, node_id: NodeId, voters: Mapping[NodeId, Address]) -> None:
        self._node_id = node_id
        self._voters = voters
        #: As they were when last asked for, and what they came from: neither of these ever changes.
        self._found: dict[NodeId, Address] = {}
        self._membership: Membership | None = None
        self._brokers: Mapping[NodeId, Broker] = {}

    def of(self, membership: Membership, brokers: Mapping[NodeId, Broker]) -> Mapping[NodeId, Address]:
        """Read anew only where the cluster has agreed on something else: it is asked for again and again."""
        if membership is not self._membership or brokers is not self._brokers:
            self._membership, self._brokers = membership, brokers
            self._found = self._read(membership, brokers)
        return self._found

    def _read(self, membership: Membership, brokers: Mapping[NodeId, Broker]) -> dict[NodeId, Address]:
        known = dict(self._voters)
        places = [(member.node_id, member.address) for member in membership.members]
        places += [(broker.node_id, broker.peer_address) for broker in brokers.values()]
        known.update({node_id: parse_address(place) for node_id, place in places if place and is_address(place)})
        known.pop(self._node_id, None)
        return known


class Quorum:
    def __init__(
        self,
        config: QuorumConfig,
        *,
        cluster_id: str,
        peers: PeerBus,
        controller: Controller,
        new_uuid: Callable[[], UUID],
        storage: RaftStorage,
        session_timeout_ms: int,
        balance: BalanceConfig,
        environment: QuorumEnvironment,
    ) -> None:
        self._config = config
        self._environment = environment
        self._storage = storage
        self._peers = peers
        #: A quorum leader that this node has yet to hear of, and where it is by the word of another.
        self._referral: tuple[NodeId, Address] | None = None
        #: Of each peer when it was last connected.
        self._incarnations: dict[NodeId, int] = {}
        #: As the log last said.
        self._told_leader: QuorumLeader | None = None
        #: Whoever led last, as long as this node has not led since.
        self._predecessor: Predecessor | None = None
        self._agreed = AgreedAddresses(config.node_id, config.voters)
        loop, random = environment.loop, environment.random
        self.leader_calls = LeaderCalls(
            config.node_id,
            peers,
            loop=loop,
            random=random,
            known_nodes=lambda: sorted(self._addresses()),
            known_leader=lambda: self.leader,
            answer=self._decide,
            on_referral=self._leader_referred_to,
        )
        self.metadata = metadata = QuorumMetadataStore(self.leader_calls, loop, new_uuid, environment.workers)
        self.leadership_uncertainty = LeadershipUncertainty(loop, self._is_live)
        self.departed_brokers = DepartedBrokers(loop)
        self.balance = AutomaticBalance(balance, metadata, lambda: self._leadership.current, loop, environment.workers)
        self._recovery = RecoveryReport(config.node_id, storage.log_path, environment.conditions, loop)
        self.driver = self._restore(storage)
        self._file_check = FileCheck(config.node_id, self.driver, storage, loop, environment.on_failure)
        self._leadership = Leadership(
            config.node_id,
            cluster_id,
            controller,
            metadata,
            self.driver,
            neighbours=peers,
            session_timeout_ms=session_timeout_ms,
            loop=loop,
            executor=environment.workers,
        )
        peers.know_by(self)
        peers.watch_links(self)
        peers.take_messages(Channel.RAFT, self.message_received)
        peers.answer_requests(Channel.CONTROLLER, self.request_received, of_guests=True)

    @property
    def leader(self) -> QuorumLeader | None:
        """The quorum leader, as far as this node knows. Says nothing about who leads any partition."""
        return self.driver.leader

    async def start(self) -> None:
        """Listen for the peers, and go on from what the log on the disk says."""
        self.metadata.subscribe(self._metadata_changed)
        self.balance.start()
        self._update_peers()
        if (listen := self._config.peer_listen) is not None:
            await self._peers.start(listen, self._config.peer_advertised)
        tell_findings(self._id, self._storage.findings)
        if (lost_log := self.driver.lost_log) is not None:
            self._recovery.start(lost_log, lambda: self.driver.log_end_offset, lambda: self.leader)
        self.driver.start()
        self._file_check.start()

    async def hand_over(self, timeout_ms: float) -> None:
        """Before a stop: have another voter lead, so that the cluster does not have to find out and elect one."""
        deadline = self._environment.loop.time() + timeout_ms / 1000
        for successor in self._successors():
            with suppress(NotQuorumLeader, OutcomeUnknown, TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self.driver.hand_over(successor)
                # The successor may need this node's vote, so it must not stop before that has arrived.
                await self.leader_calls.wait_for_leader((deadline - self._environment.loop.time()) * 1000)
                logger.info("quorum handed over node=%s successor=%s", self._id, successor)
                return

    def _successors(self) -> list[NodeId]:
        """Voters that are there and do not stop themselves; first those that have most of the log."""
        if self._leadership.current is None:
            return []
        ends = self.driver.log_end_offsets()
        voters = [node_id for node_id in self.driver.membership.voters if node_id != self._id]
        present = [n for n in voters if self._peers.is_connected(n) and self.metadata.image.is_active(n)]
        return sorted(present, key=lambda node_id: (-ends.get(node_id, 0), node_id))

    async def stop(self) -> None:
        self.balance.stop()
        self._recovery.stop()
        self._file_check.stop()
        self._leadership.stop()
        await self.driver.stop()
        await self._peers.stop()
        self._storage.close()

    async def check_files(self) -> list[Finding]:
        """Check the quorum's files now, and repair what is damaged; returns what was found."""
        return await self._file_check.check_now()

    async def ask(self, request: LeaderRequest, timeout_ms: float) -> LeaderAnswer:
        answer, _ = await self.leader_calls.ask(request, timeout_ms)
        return answer

    # What peers say.

    def directory_of(self, node_id: NodeId) -> DirectoryId:
        """By the latest membership in the log, as everything about votes: the image is empty when a node starts."""
        directory_id = self.driver.directory_of(node_id)
        broker = self.metadata.image.brokers.get(node_id)
        if directory_id == NO_DIRECTORY and broker is not None and self.driver.membership.member(node_id) is None:
            return broker.directory_id  # It has registered, and becomes a member next.
        return directory_id

    def knows(self, node_id: NodeId) -> bool:
        return self.driver.membership.member(node_id) is not None or node_id in self.metadata.image.brokers

    def message_received(self, sender: NodeId, payload: memoryview) -> None:
        message = read_message(sender, payload)
        objection = self.driver.objection_to(message)
        if objection is not None:
            raise PeerProtocolError(f"{type(message).__name__} refused: {objection}")
        check_metadata(message)
        self._note_predecessor(sender)
        self.driver.message_received(message)

    async def request_received(self, sender: Sender, payload: bytes) -> bytes:
        """A request to the quorum leader, whoever that is."""
        request = read_request(sender.node_id, payload, is_known=sender.is_known)
        try:
            return encode(await self._leadership.answer(request))
        except NotQuorumLeader as refused:
            address = None if refused.leader is None else self._addresses().get(refused.leader.node_id)
            return encode(Redirect(leader=refused.leader, address=str(address or "")))

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:
        if self._incarnations.get(node_id) == incarnation:
            self.leadership_uncertainty.peer_back(node_id)  # Only the connection was lost.
        self._incarnations[node_id] = incarnation
        self.leader_calls.leader_changed()
        self.driver.peer_reachable(node_id)

    def peer_connection_lost(self, node_id: NodeId) -> None:
        self.leadership_uncertainty.peer_lost(node_id)

    def peer_died(self, node_id: NodeId) -> None:
        self.leadership_uncertainty.peer_lost(node_id)
        self.driver.peer_died(node_id)
        self._leadership.broker_died(node_id)

    async def _decide(self, request: LeaderRequest) -> LeaderAnswer:
        return await self._leadership.answer(request)

    @property
    def _id(self) -> NodeId:
        return self._config.node_id

    def _restore(self, storage: RaftStorage) -> RaftDriver:
        restored = storage.restore()
        if restored.snapshot is not None:
            self.metadata.install(restored.snapshot)
        raft = RaftNode(
            node_id=self._id,
            config=RaftConfig(),
            jitter=self._environment.random.random,
            now_ms=monotonic_ms(self._environment.loop),
            bootstrap=self._bootstrap(),
            hard_state=restored.hard_state,
            snapshot=restored.snapshot,
            entries=restored.entries,
            lost_log=restored.lost_log,
        )
        return RaftDriver(
            raft,
            storage,
            self.metadata,
            loop=self._environment.loop,
            executor=self._environment.executor,
            clock=self._environment.clock,
            send=self._send,
            on_state=self._state_changed,
            on_membership=lambda _: self._update_peers(),
            on_failure=self._environment.on_failure,
            on_recovered=lambda: self._recovery.recovered(self.driver.log_end_offset),
        )

    def _bootstrap(self) -> Membership:
        """The first membership: the configured voters, or this node alone. One that joins later starts with none."""
        voters = self._config.voters
        if not voters:
            address = self._config.peer_advertised or self._config.peer_listen
            return Membership.of([Member(self._id, str(address or ""), is_voter=True)])
        if self._id not in voters:
            return Membership()
        return Membership.of(Member(node_id, str(address), is_voter=True) for node_id, address in voters.items())

    def _send(self, message: Message) -> None:
        self._peers.send(Channel.RAFT, message.receiver, encode_message(message))

    def _state_changed(self, state: QuorumState) -> None:
        if state.leader is not None and state.leader != self._told_leader:
            self._told_leader = state.leader
            logger.info(
                "quorum leader changed node=%s leader=%s term=%s", self._id, state.leader.node_id, state.leader.term
            )
        if state.can_decide:
            assert state.leader is not None
            self._leadership.begin(state.leader, self._predecessor)
            self._predecessor = None
            self.balance.look_soon()
        else:
            self._leadership.end()
        self.leader_calls.leader_changed()

    def _note_predecessor(self, sender: NodeId) -> None:
        """Whatever the leader says shows that it lives, also what it says after it has lost the quorum."""
        leader, predecessor = self.leader, self._predecessor
        if leader is not None:
            is_meant = sender == leader.node_id
        else:
            is_meant = predecessor is not None and sender == predecessor.node_id
        if is_meant:
            self._predecessor = Predecessor(sender, monotonic_ms(self._environment.loop))

    def _is_live(self, node_id: NodeId) -> bool:
        return self.metadata.image.is_live(node_id)

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        if delta.changed_brokers:
            self._update_peers()
            self.leadership_uncertainty.look_again()
            self.departed_brokers.brokers_changed(image, delta.changed_brokers)

    def _addresses(self) -> Mapping[NodeId, Address]:
        """Where every other node is, by what the cluster has agreed on or else the configuration.

        Never by what a node says of itself, or whoever connects could have this one dial any place. One that this node
        has not heard of yet, or that has moved, is answered on the connection that it opens. But whoever is dialled
        may say where the leader is.
        """
        agreed = self._agreed_addresses()
        return agreed if self._referral is None else {**dict([self._referral]), **agreed}

    def _agreed_addresses(self) -> Mapping[NodeId, Address]:
        return self._agreed.of(self.driver.membership, self.metadata.image.brokers)

    def _leader_referred_to(self, node_id: NodeId, address: str) -> None:
        if address and is_address(address) and node_id not in self._agreed_addresses():
            self._referral = (node_id, parse_address(address))
            self._update_peers()

    def _update_peers(self) -> None:
        self._peers.set_peers(self._addresses())
        self._peers.review()
