"""A node: what it is made of, and the order in which the parts start and stop.

Everything that is not deterministic is handed in through ``Environment``: the loop, the clock, the disk, the threads
and the random source. Handlers get the node and use its parts.
"""

import asyncio
import logging
import posixpath
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from random import Random
from typing import cast
from uuid import UUID

import msgspec

from quorate.broker.client_limits import ClientQuotas, WindowConfig
from quorate.broker.config import NodeConfig
from quorate.broker.descriptors import DescriptorWatch
from quorate.broker.fetch.sessions import FetchSessions
from quorate.broker.housekeeping import Housekeeping, HousekeepingConfig
from quorate.broker.large_requests import ANSWERED_AT_ONCE, LargeRequests
from quorate.broker.loop_watchdog import LoopHolds
from quorate.broker.peer_requests import PeerRequests
from quorate.broker.produce.record_opening import RecordOpening
from quorate.broker.producer_ids import ProducerIds
from quorate.broker.services import Services
from quorate.coordination.coordinator import CoordinatorEnvironment
from quorate.coordination.groups.coordinator import GroupCoordinator
from quorate.coordination.transactions.coordinator import TransactionCoordinator
from quorate.coordination.transactions.verification import ProducerTurns, TransactionVerifier
from quorate.kernel.address import Address
from quorate.kernel.conditions import Conditions
from quorate.kernel.ports import Clock, Disk
from quorate.kernel.settings import Durability
from quorate.kernel.turns import Turns
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import broker_value
from quorate.metadata.core.placement import LeaderPlacement
from quorate.quorum.automatic_balance import BalanceConfig
from quorate.quorum.damage_report import tell_findings
from quorate.quorum.identity import settle_identity
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.quorum import Quorum, QuorumEnvironment
from quorate.quorum.raft_storage import RaftStorage
from quorate.quorum.registration import BrokerRegistration, RegistrationConfig
from quorate.replication.catch_up_throttle import CatchUpThrottle, ThrottledSide
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.disk_room import DiskRoom, DiskWatch
from quorate.replication.group_commit import GroupCommit
from quorate.replication.integrity.log_integrity import LogIntegrity
from quorate.replication.integrity.other_replicas import OtherReplicas
from quorate.replication.integrity.range_reads import RangeServer
from quorate.replication.integrity.scrub import Scrub, ScrubSettings
from quorate.replication.partitions import Partitions, PartitionsConfig
from quorate.replication.replication import NodeReplication
from quorate.storage.partition_folders import DELETED_SUFFIX
from quorate.storage.reserve import Reserve, ReservedDisk
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.frames import Channel

logger = logging.getLogger(__name__)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs of the world around it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    #: Runs what blocks: syncs, compaction.
    executor: Executor
    #: The same for the metadata log alone, which must not wait behind the syncs of partitions.
    quorum_executor: Executor
    random: Random
    #: Those of the process; None where they are not this node's to divide.
    descriptors: DescriptorWatch | None = None


class Node:
    def __init__(self, config: NodeConfig, environment: Environment) -> None:
        self.config = config
        self.loop = environment.loop
        self.clock = environment.clock
        self._reserve = Reserve(environment.disk, config.data_dir)
        self.disk = ReservedDisk(environment.disk, self._reserve)
        self._room = DiskRoom()
        self.executor = environment.executor
        self._quorum_executor = environment.quorum_executor
        self.random = environment.random
        self.view = config.broker_view()
        #: What this node reports about itself.
        self.conditions = Conditions()
        self.descriptors = environment.descriptors
        if self.descriptors is not None:
            self.descriptors.report_to(self.conditions)
        self.group_commit = GroupCommit(self.loop, self.executor)
        self.turns = Turns(self.loop)
        self.record_opening = RecordOpening(self.loop, self.executor)
        self.large_requests = LargeRequests(self.loop, self.executor, self.turns)
        #: Tells this start of the node from every other.
        self.incarnation = self.new_uuid()
        #: Turns of the loop that took too long. What runs the node counts them, where it watches.
        self.loop_holds = LoopHolds()
        #: Kinds of failed requests whose traceback is in the log.
        self.told_failures: set[object] = set()
        self.failure: Exception | None = None
        self.failed = asyncio.Event()

    async def start(self, advertised: Address) -> None:
        """Take part in the cluster, bring back what is on the disk, and be ready for requests."""
        self._make_data_dir()
        self._reserve.find()
        config = self.config
        self._identity = settle_identity(self.disk, config.data_dir, config.node_id, config.cluster_id, self.new_uuid)
        tell_findings(config.node_id, [self._identity.finding] if self._identity.finding else [])
        await self.loop.run_in_executor(self.executor, self._remove_deleted_logs)
        self.metadata = QuorumMetadataStore(self.loop, self.new_uuid, self.executor)
        self.peers = self._make_peers()
        self.quorum = self._make_quorum(await self.loop.run_in_executor(self._quorum_executor, self._read_quorum_files))
        await self.quorum.start()
        self._registration = self._make_registration(advertised)
        self._disk_watch = self._make_disk_watch()
        self._disk_watch.start()
        await self._registration.register()
        await self._open_partitions()
        self.producer_ids = ProducerIds(self.metadata)
        self.fetch_sessions = FetchSessions(
            slots=self.int_config("max.incremental.fetch.session.cache.slots"),
            new_session_id=lambda: self.random.randrange(1, 2**31),
        )
        self.quotas = self._make_quotas()
        coordination = CoordinatorEnvironment(
            node_id=config.node_id,
            metadata=self.metadata,
            partitions=self.partitions,
            loop=self.loop,
            clock=self.clock,
            executor=self.executor,
            config=self.broker_config,
        )
        self.groups = GroupCoordinator(coordination, self.new_uuid)
        self.groups.start()
        self._start_transactions(coordination)
        self._housekeeping = self._make_housekeeping()
        self._housekeeping.start()
        self._scrub = self._make_scrub()
        self._scrub.start()
        await self._registration.begin()

    def _start_transactions(self, coordination: CoordinatorEnvironment) -> None:
        self.peer_requests = PeerRequests(self.config.node_id, self.peers)
        self.transactions = TransactionCoordinator(coordination, self.peer_requests, self.producer_ids.take)
        self.producer_turns = ProducerTurns(self.loop)
        self.transaction_verifier = TransactionVerifier(
            self.peer_requests, self.transactions.known_coordinator, self.loop
        )
        self.services = self._make_services()
        self.peer_requests.open(self.services)
        self.transactions.start()

    def _make_services(self) -> Services:
        return Services(
            loop=self.loop,
            clock=self.clock,
            disk=self.disk,
            executor=self.executor,
            turns=self.turns,
            node_id=self.config.node_id,
            data_dir=self.config.data_dir,
            view=self.view,
            conditions=self.conditions,
            metadata=self.metadata,
            quorum=self.quorum,
            partitions=self.partitions,
            groups=self.groups,
            transactions=self.transactions,
            transaction_verifier=self.transaction_verifier,
            producer_turns=self.producer_turns,
            producer_ids=self.producer_ids,
            record_opening=self.record_opening,
            fetch_sessions=self.fetch_sessions,
            quotas=self.quotas,
            describing=asyncio.Semaphore(ANSWERED_AT_ONCE),
            fetch_max_bytes=self.int_config("fetch.max.bytes"),
            auto_creates_topics=bool(self.broker_config("auto.create.topics.enable")),
        )

    def _read_quorum_files(self) -> RaftStorage:
        config = self.config
        return RaftStorage(self.disk.covering_segments(), config.data_dir, self.clock, config.quorum.has_other_voters)

    def _make_peers(self) -> PeerBus:
        identity = PeerIdentity(
            node_id=self.config.node_id,
            cluster_id=self._identity.cluster_id,
            incarnation=self.incarnation.int >> 65,
            directory_id=self._identity.directory_id,
        )
        most_strangers = None if self.descriptors is None else self.descriptors.budget.strangers
        return PeerBus(self.loop, self.random, identity, PeerConfig().with_strangers(most_strangers))

    def _make_quorum(self, storage: RaftStorage) -> Quorum:
        config = self.config
        return Quorum(
            config.quorum,
            cluster_id=self._identity.cluster_id,
            peers=self.peers,
            controller=Controller(self.view, self.new_uuid, config.leader_placement),
            storage=storage,
            store=self.metadata,
            session_timeout_ms=self.int_config("broker.session.timeout.ms"),
            balance=BalanceConfig(
                delay_ms=self.int_config("leader.imbalance.check.interval.seconds") * 1000,
                moves_leaders=bool(self.broker_config("auto.leader.rebalance.enable")),
                fills_new_nodes=bool(self.broker_config("auto.new.node.rebalance.enable")),
                favours_quorum_leader=config.leader_placement is LeaderPlacement.QUORUM_LEADER,
            ),
            environment=QuorumEnvironment(
                loop=self.loop,
                clock=self.clock,
                executor=self._quorum_executor,
                workers=self.executor,
                random=self.random,
                conditions=self.conditions,
                on_failure=self.fail,
            ),
        )

    def _make_registration(self, advertised: Address) -> BrokerRegistration:
        config = self.config
        return BrokerRegistration(
            RegistrationConfig(
                node_id=config.node_id,
                host=advertised.host,
                port=advertised.port,
                rack=config.rack,
                peer_address=str(config.peer_advertised or config.peer_listen or ""),
                incarnation=self.incarnation,
                directory_id=self._identity.directory_id,
                heartbeat_interval_ms=self.int_config("broker.heartbeat.interval.ms"),
            ),
            self.metadata,
            self.quorum.leader_calls,
            loop=self.loop,
            on_failure=self.fail,
        )

    async def _open_partitions(self) -> None:
        """Only now: the image shows this start of the broker, so nothing of an earlier one is taken for current."""
        self._integrity = self._make_integrity()
        self.partitions = Partitions(
            PartitionsConfig(
                data_dir=self.config.data_dir, view=self.view, durability=self.config.durability, room=self._room
            ),
            self.disk,
            self.group_commit,
            self._integrity,
            loop=self.loop,
            executor=self.executor,
            on_failure=self.fail,
        )
        self.replication = self._make_replication()
        self.partitions.connect(self.replication)
        replication, ranges = self.replication, RangeServer(self.partitions, self.loop, self.executor)
        self.peers.watch_links(replication)
        self.peers.answer_requests(
            Channel.REPLICA_FETCH, lambda sender, payload: replication.fetch(sender.node_id, payload)
        )
        self.peers.answer_requests(Channel.READ_RANGE, lambda _, payload: ranges.serve(payload))
        await self.partitions.start(self.metadata)
        self.metadata.wait_after_creation(self.partitions.opened)

    def _make_integrity(self) -> LogIntegrity:
        integrity = LogIntegrity(
            self.config.node_id,
            self.disk,
            self.conditions,
            loop=self.loop,
            executor=self.executor,
            on_failure=self.fail,
        )
        other = OtherReplicas(self.config.node_id, self._registration.broker_epoch, self.metadata)
        integrity.connect(partial(self.peers.request, Channel.READ_RANGE), other.of, other.resign)
        return integrity

    def _make_scrub(self) -> Scrub:
        return Scrub(
            self.partitions,
            self._integrity,
            self.conditions,
            settings=lambda: ScrubSettings(
                bytes_per_second=self.int_config("log.scrub.bytes.per.second"),
                interval_ms=self.int_config("log.scrub.interval.ms"),
            ),
            disk=self.disk,
            clock=self.clock,
            loop=self.loop,
            executor=self.executor,
            on_failure=self.fail,
        )

    def _make_replication(self) -> NodeReplication:
        return NodeReplication(
            self.config.node_id,
            self._registration.broker_epoch,
            self.metadata,
            ReplicationConfig(
                requires_sync=self.config.durability is Durability.FSYNC,
                replica_lag_time_max_ms=self.int_config("replica.lag.time.max.ms"),
            ),
            loop=self.loop,
            find_led=self.partitions.led_by_key,
            call=partial(self.peers.request_and_read, Channel.REPLICA_FETCH),
            first_session=self.random.randrange(1 << 48),
            on_failure=self.fail,
            leader_throttle=CatchUpThrottle(ThrottledSide.LEADER, self.metadata, self.view, self.loop),
            follower_throttle=CatchUpThrottle(ThrottledSide.FOLLOWER, self.metadata, self.view, self.loop),
        )

    def _make_quotas(self) -> ClientQuotas:
        window = WindowConfig(
            sample_count=self.int_config("quota.window.num"),
            sample_size_ms=self.int_config("quota.window.size.seconds") * 1000,
        )
        quotas = ClientQuotas(window, self.metadata.image, self.loop.time)
        self.metadata.subscribe(quotas.metadata_changed)
        return quotas

    def _make_disk_watch(self) -> DiskWatch:
        return DiskWatch(
            self.config.node_id,
            self.config.data_dir,
            self._room,
            disk=self.disk,
            reserve=self._reserve,
            reserve_bytes=lambda: self.int_config("log.disk.reserve.bytes"),
            conditions=self.conditions,
            loop=self.loop,
            executor=self.executor,
            tell_cluster=lambda has_room: self._registration.tell_room(has_room=has_room),
        )

    def _make_housekeeping(self) -> Housekeeping:
        return Housekeeping(
            HousekeepingConfig(
                retention_interval_ms=self.int_config("log.retention.check.interval.ms"),
                cleaning_interval_ms=self.int_config("log.cleaner.backoff.ms"),
                durability=self.config.durability,
            ),
            self.partitions,
            loop=self.loop,
            executor=self.executor,
            disk=self.disk,
            clock=self.clock,
            group_commit=self.group_commit,
        )

    def fail(self, error: Exception) -> None:
        """The node cannot go on: what runs it is to end it."""
        if self.failure is None:
            self.failure = error
            logger.critical("node failed node=%s error=%s", self.config.node_id, error, exc_info=error)
            self.failed.set()

    async def leave(self) -> None:
        """Before a stop: let others take over what this node leads, so that their clients hardly notice."""
        if len(self.metadata.image.live_brokers) > 1:
            await self._registration.leave(self.config.stop_grace_ms)
            await self.quorum.hand_over(self.config.stop_grace_ms)

    def release_waiting_requests(self) -> None:
        """Before a stop: answer the requests that would otherwise wait for others, parked joins and long polls."""
        self.transactions.stop()
        self.groups.stop()
        for partition in self.partitions:
            partition.release_watchers()

    async def stop(self) -> None:
        """Leave everything on the disk complete, so that the next start has nothing to check."""
        self._registration.stop()
        self.replication.stop()
        await self._disk_watch.stop()
        await self._scrub.stop()
        await self._integrity.stop()
        await self._housekeeping.stop()
        self.transactions.stop()
        self.groups.stop()
        await self.group_commit.wait_until_idle()
        await self.partitions.close()
        await self.quorum.stop()

    def broker_config(self, name: str) -> ConfigValue:
        return broker_value(self.metadata.image, self.view, name)

    def _make_data_dir(self) -> None:
        """Make the folder so that a power cut cannot take it away again, nor any folder above it."""
        self.disk.make_directory(self.config.data_dir)
        folder = self.config.data_dir
        while (parent := posixpath.dirname(folder)) not in ("", folder):
            with suppress(PermissionError):  # Not ours: it was there before.
                self.disk.sync_directory(parent)
            folder = parent

    def _remove_deleted_logs(self) -> None:
        """Finish deletions that the last stop cut short."""
        for name in self.disk.list_directory(self.config.data_dir):
            if name.endswith(DELETED_SUFFIX):
                self.disk.remove_tree(f"{self.config.data_dir}/{name}")

    def new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def int_config(self, name: str) -> int:
        return cast(int, self.broker_config(name))
