"""The start of a node: what it is made of, and the order in which the parts are made and begin."""

import asyncio
import posixpath
from contextlib import suppress
from functools import partial
from typing import cast
from uuid import UUID

from quorate.broker.access_control import make_access_control
from quorate.broker.address_rates import AddressQuotas, HostLookUp
from quorate.broker.client_limits import ClientQuotas
from quorate.broker.config import NodeConfig
from quorate.broker.dispatch import Dispatch, PeerRequests
from quorate.broker.fetch.sessions import FetchSessions
from quorate.broker.first_user import FirstUserMaking
from quorate.broker.housekeeping import Housekeeping, HousekeepingConfig
from quorate.broker.large_requests import ANSWERED_AT_ONCE
from quorate.broker.node import Environment, NodeEnd, RunningNode
from quorate.broker.peer_credentials import CertificateExpiry, CredentialFiles, CredentialWatch
from quorate.broker.produce.record_opening import RecordOpening
from quorate.broker.producer_ids import ProducerIds
from quorate.broker.services import Services
from quorate.coordination.coordinator import CoordinatorEnvironment
from quorate.coordination.groups.coordinator import GroupCoordinator
from quorate.coordination.transactions.coordinator import TransactionCoordinator
from quorate.coordination.transactions.verification import ProducerTurns, TransactionVerifier
from quorate.kernel.conditions import Conditions
from quorate.kernel.settings import Durability
from quorate.kernel.turns import Turns
from quorate.metadata.core.config_definitions import ConfigValue
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.effective_configs import broker_value
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.placement import LeaderPlacement
from quorate.metadata.core.rate_quotas import WindowConfig
from quorate.metadata.core.records import BrokerEndpoint
from quorate.quorum.damage_report import tell_findings
from quorate.quorum.identity import Identity, has_joined, settle_identity
from quorate.quorum.metadata_store import QuorumMetadataStore
from quorate.quorum.quorum import Quorum, QuorumEnvironment
from quorate.quorum.raft_storage import RaftStorage
from quorate.quorum.registration import BrokerRegistration, RegistrationConfig
from quorate.quorum.upkeep import BalanceConfig
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
from quorate.security.delegation_token import TokenKeys
from quorate.storage.partition_folders import DELETED_SUFFIX
from quorate.storage.reserve import Reserve, ReservedDisk
from quorate.transport.peers.bus import PeerBus
from quorate.transport.peers.config import PeerConfig, PeerIdentity
from quorate.transport.peers.frames import Channel


async def start_node(config: NodeConfig, environment: Environment, end: NodeEnd) -> RunningNode:
    """Take part in the cluster, bring back what is on the disk, and be ready for requests.

    A start that fails or is cancelled stops what it has begun of the quorum: no other part has anything to complete.
    """
    ground = _Ground(config, environment, end)
    await ground.first_user.read(is_new_node=not has_joined(ground.disk, config.data_dir))
    identity = await ground.settle()
    peers, credentials = await _make_peers(ground, identity)
    quorum = await _make_quorum(ground, identity, peers)
    if environment.on_quorum is not None:
        environment.on_quorum(quorum)
    # From the first moment: a node that is kept out by its secret waits for the others, and for the right one.
    credentials.start()
    try:
        await quorum.start()
        return await _start_broker(_Joined(ground, identity, peers, credentials, quorum))
    except (Exception, asyncio.CancelledError):
        await credentials.stop()
        await quorum.stop()
        raise


async def _start_broker(joined: "_Joined") -> RunningNode:
    ground, peers, quorum, metadata = joined.ground, joined.peers, joined.quorum, joined.metadata
    registration = _make_registration(joined)
    disk_watch = _make_disk_watch(joined, registration)
    disk_watch.start()
    await registration.register()
    await ground.first_user.make(metadata)
    # Only now: the image shows this start of the broker, so nothing of an earlier one is taken for current.
    integrity = _make_integrity(joined, registration)
    partitions = _make_partitions(joined, integrity)
    replication = _make_replication(joined, registration, partitions)
    partitions.connect(replication)
    _open_to_replicas(joined, replication, RangeServer(partitions, ground.loop, ground.executor))
    await partitions.start(metadata)
    metadata.wait_after_creation(partitions.opened)
    peer_requests = PeerRequests(ground.config.node_id, peers)
    services = _make_services(joined, partitions, peer_requests)
    services.groups.start()
    peer_requests.serve(services)
    services.transactions.start()
    housekeeping = _make_housekeeping(joined, partitions)
    housekeeping.start()
    scrub = _make_scrub(joined, partitions, integrity)
    scrub.start()
    await registration.begin()
    return RunningNode(
        config=ground.config,
        loop=ground.loop,
        end=ground.end,
        peers=peers,
        credentials=joined.credentials,
        quorum=quorum,
        registration=registration,
        disk_watch=disk_watch,
        group_commit=ground.group_commit,
        integrity=integrity,
        partitions=partitions,
        replication=replication,
        groups=services.groups,
        transactions=services.transactions,
        housekeeping=housekeeping,
        scrub=scrub,
        services=services,
        dispatch=Dispatch(services),
    )


class _Ground:
    """What all parts stand on, before anything has been read from the disk or heard from the cluster."""

    def __init__(self, config: NodeConfig, environment: Environment, end: NodeEnd) -> None:
        self.config = config
        self.environment = environment
        self.end = end
        self.loop = environment.loop
        self.clock = environment.clock
        self.executor = environment.executor
        self.random = environment.random
        self.reserve = Reserve(environment.disk, config.data_dir)
        self.disk = ReservedDisk(environment.disk, self.reserve)
        self.room = DiskRoom()
        self.view = config.broker_view()
        #: What the node reports about itself.
        self.conditions = Conditions()
        if environment.descriptors is not None:
            environment.descriptors.report_to(self.conditions)
        self.group_commit = GroupCommit(self.loop, self.executor)
        self.turns = Turns(self.loop)
        self.first_user = FirstUserMaking(
            config.node_id,
            config.first_user,
            environment.operator_files,
            loop=self.loop,
            executor=self.executor,
            random_bytes=self.random.randbytes,
        )
        #: Tells this start of the node from every other.
        self.incarnation = self.new_uuid()

    async def settle(self) -> Identity:
        """Make the data folder this node's, and remove what the last stop has left to remove."""
        config = self.config
        self._make_data_dir()
        self.reserve.find()
        identity = settle_identity(self.disk, config.data_dir, config.node_id, config.cluster_id, self.new_uuid)
        tell_findings(config.node_id, [identity.finding] if identity.finding else [])
        await self.loop.run_in_executor(self.executor, self._remove_deleted_logs)
        return identity

    def new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

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


class _Joined:
    """A node in its cluster: it hears the metadata, whose configs hold from here on."""

    def __init__(
        self, ground: _Ground, identity: Identity, peers: PeerBus, credentials: CredentialWatch, quorum: Quorum
    ) -> None:
        self.ground = ground
        self.identity = identity
        self.peers = peers
        self.credentials = credentials
        self.quorum = quorum

    @property
    def metadata(self) -> QuorumMetadataStore:
        return self.quorum.metadata

    def config(self, name: str) -> ConfigValue:
        return broker_value(self.metadata.image, self.ground.view, name)

    def int_config(self, name: str) -> int:
        return cast(int, self.config(name))


async def _make_peers(ground: _Ground, identity: Identity) -> tuple[PeerBus, CredentialWatch]:
    environment = ground.environment
    files = CredentialFiles(ground.config, environment.operator_files)
    texts, credentials = await ground.loop.run_in_executor(ground.executor, files.load)
    descriptors = environment.descriptors
    peers = PeerBus(
        ground.loop,
        ground.random,
        PeerIdentity(
            node_id=ground.config.node_id,
            cluster_id=identity.cluster_id,
            incarnation=ground.incarnation.int >> 65,
            directory_id=identity.directory_id,
        ),
        PeerConfig().with_strangers(None if descriptors is None else descriptors.budget.strangers),
        credentials,
    )
    node_id = ground.config.node_id
    watch = CredentialWatch(
        node_id,
        files,
        texts,
        loop=ground.loop,
        executor=ground.executor,
        on_change=peers.use_credentials,
        on_failure=ground.end.fail,
        on_look=CertificateExpiry(node_id, lambda: peers.credentials.tls, ground.conditions, ground.clock).look,
    )
    return peers, watch


async def _make_quorum(ground: _Ground, identity: Identity, peers: PeerBus) -> Quorum:
    config = ground.config

    def read_files() -> RaftStorage:
        disk = ground.disk.covering_segments()
        return RaftStorage(disk, config.data_dir, ground.clock, config.quorum.has_other_voters)

    def static_config(name: str) -> int:
        return cast(int, broker_value(MetadataImage(), ground.view, name))

    return Quorum(
        config.quorum,
        cluster_id=identity.cluster_id,
        peers=peers,
        controller=Controller(ground.view, ground.new_uuid, ground.clock.now_ms, config.leader_placement),
        new_uuid=ground.new_uuid,
        storage=await ground.loop.run_in_executor(ground.environment.quorum_executor, read_files),
        session_timeout_ms=static_config("broker.session.timeout.ms"),
        balance=BalanceConfig(
            delay_ms=static_config("leader.imbalance.check.interval.seconds") * 1000,
            moves_leaders=bool(static_config("auto.leader.rebalance.enable")),
            fills_new_nodes=bool(static_config("auto.new.node.rebalance.enable")),
            favours_quorum_leader=config.leader_placement is LeaderPlacement.QUORUM_LEADER,
        ),
        environment=QuorumEnvironment(
            loop=ground.loop,
            clock=ground.clock,
            executor=ground.environment.quorum_executor,
            workers=ground.executor,
            random=ground.random,
            conditions=ground.conditions,
            on_failure=ground.end.fail,
        ),
    )


def _make_registration(joined: _Joined) -> BrokerRegistration:
    config = joined.ground.config
    listeners = config.listeners.all
    return BrokerRegistration(
        RegistrationConfig(
            node_id=config.node_id,
            host=listeners[0].advertised.host,
            port=listeners[0].advertised.port,
            endpoints=tuple(
                BrokerEndpoint(listener=each.name, host=each.advertised.host, port=each.advertised.port)
                for each in listeners
            ),
            rack=config.rack,
            peer_address=str(config.peer_advertised or config.peer_listen or ""),
            incarnation=joined.ground.incarnation,
            directory_id=joined.identity.directory_id,
            heartbeat_interval_ms=joined.int_config("broker.heartbeat.interval.ms"),
        ),
        joined.metadata,
        joined.quorum.leader_calls,
        loop=joined.ground.loop,
        on_failure=joined.ground.end.fail,
    )


def _make_disk_watch(joined: _Joined, registration: BrokerRegistration) -> DiskWatch:
    ground = joined.ground
    return DiskWatch(
        ground.config.node_id,
        ground.config.data_dir,
        ground.room,
        disk=ground.disk,
        reserve=ground.reserve,
        reserve_bytes=lambda: joined.int_config("log.disk.reserve.bytes"),
        conditions=ground.conditions,
        loop=ground.loop,
        executor=ground.executor,
        tell_cluster=lambda has_room: registration.tell_room(has_room=has_room),
    )


def _make_integrity(joined: _Joined, registration: BrokerRegistration) -> LogIntegrity:
    ground = joined.ground
    integrity = LogIntegrity(
        ground.config.node_id,
        ground.disk,
        ground.conditions,
        loop=ground.loop,
        executor=ground.executor,
        on_failure=ground.end.fail,
    )
    other = OtherReplicas(ground.config.node_id, registration.broker_epoch, joined.metadata)
    integrity.connect(partial(joined.peers.request, Channel.READ_RANGE), other.of, other.resign)
    return integrity


def _make_partitions(joined: _Joined, integrity: LogIntegrity) -> Partitions:
    ground = joined.ground
    return Partitions(
        PartitionsConfig(
            data_dir=ground.config.data_dir, view=ground.view, durability=ground.config.durability, room=ground.room
        ),
        ground.disk,
        ground.group_commit,
        integrity,
        loop=ground.loop,
        executor=ground.executor,
        on_failure=ground.end.fail,
    )


def _make_replication(joined: _Joined, registration: BrokerRegistration, partitions: Partitions) -> NodeReplication:
    ground, metadata = joined.ground, joined.metadata
    return NodeReplication(
        ground.config.node_id,
        registration.broker_epoch,
        metadata,
        ReplicationConfig(
            requires_sync=ground.config.durability is Durability.FSYNC,
            replica_lag_time_max_ms=joined.int_config("replica.lag.time.max.ms"),
        ),
        loop=ground.loop,
        find_led=partitions.led_by_key,
        call=partial(joined.peers.request_and_read, Channel.REPLICA_FETCH),
        first_session=ground.random.randrange(1 << 48),
        on_failure=ground.end.fail,
        leader_throttle=CatchUpThrottle(ThrottledSide.LEADER, metadata, ground.view, ground.loop),
        follower_throttle=CatchUpThrottle(ThrottledSide.FOLLOWER, metadata, ground.view, ground.loop),
    )


def _open_to_replicas(joined: _Joined, replication: NodeReplication, ranges: RangeServer) -> None:
    joined.peers.watch_links(replication)
    joined.peers.answer_requests(Channel.REPLICA_FETCH, replication.followers.fetch)
    joined.peers.answer_requests(Channel.READ_RANGE, lambda _, payload: ranges.serve(payload))


def _make_services(joined: _Joined, partitions: Partitions, peer_requests: PeerRequests) -> Services:
    ground, metadata = joined.ground, joined.metadata
    coordination = CoordinatorEnvironment(
        node_id=ground.config.node_id,
        metadata=metadata,
        partitions=partitions,
        loop=ground.loop,
        clock=ground.clock,
        executor=ground.executor,
        config=joined.config,
    )
    producer_ids = ProducerIds(metadata)
    transactions = TransactionCoordinator(coordination, peer_requests, producer_ids.take)
    quotas = _make_quotas(joined)
    hosts = HostLookUp(ground.loop, ground.executor)
    return Services(
        loop=ground.loop,
        clock=ground.clock,
        disk=ground.disk,
        executor=ground.executor,
        turns=ground.turns,
        node_id=ground.config.node_id,
        data_dir=ground.config.data_dir,
        view=ground.view,
        conditions=ground.conditions,
        metadata=metadata,
        quorum=joined.quorum,
        partitions=partitions,
        groups=GroupCoordinator(coordination, ground.new_uuid),
        transactions=transactions,
        transaction_verifier=TransactionVerifier(peer_requests, transactions.known_coordinator, ground.loop),
        producer_turns=ProducerTurns(ground.loop),
        producer_ids=producer_ids,
        record_opening=RecordOpening(ground.loop, ground.executor, quotas.request_times),
        fetch_sessions=FetchSessions(
            slots=joined.int_config("max.incremental.fetch.session.cache.slots"),
            new_session_id=lambda: ground.random.randrange(1, 2**31),
        ),
        quotas=quotas,
        hosts=hosts,
        address_quotas=_make_address_quotas(joined, hosts),
        access_control=make_access_control(lambda: metadata.image, joined.config),
        token_keys=_make_token_keys(joined),
        new_uuid=ground.new_uuid,
        describing=asyncio.Semaphore(ANSWERED_AT_ONCE),
        fetch_max_bytes=joined.int_config("fetch.max.bytes"),
        auto_creates_topics=bool(joined.config("auto.create.topics.enable")),
    )


def _make_token_keys(joined: _Joined) -> TokenKeys | None:
    secret_key = cast(str, joined.config("delegation.token.secret.key"))
    return TokenKeys(secret_key) if secret_key else None


def _quota_window(joined: _Joined) -> WindowConfig:
    return WindowConfig(
        sample_count=joined.int_config("quota.window.num"),
        sample_size_ms=joined.int_config("quota.window.size.seconds") * 1000,
    )


def _make_address_quotas(joined: _Joined, hosts: HostLookUp) -> AddressQuotas:
    quotas = AddressQuotas(_quota_window(joined).size_ms, joined.metadata.image, hosts, joined.ground.loop)
    joined.metadata.subscribe(quotas.metadata_changed)
    return quotas


def _make_quotas(joined: _Joined) -> ClientQuotas:
    quotas = ClientQuotas(_quota_window(joined), joined.metadata.image, joined.ground.loop.time)
    joined.metadata.subscribe(quotas.metadata_changed)
    return quotas


def _make_housekeeping(joined: _Joined, partitions: Partitions) -> Housekeeping:
    ground = joined.ground
    return Housekeeping(
        HousekeepingConfig(
            retention_interval_ms=joined.int_config("log.retention.check.interval.ms"),
            cleaning_interval_ms=joined.int_config("log.cleaner.backoff.ms"),
            durability=ground.config.durability,
        ),
        partitions,
        loop=ground.loop,
        executor=ground.executor,
        disk=ground.disk,
        clock=ground.clock,
        group_commit=ground.group_commit,
    )


def _make_scrub(joined: _Joined, partitions: Partitions, integrity: LogIntegrity) -> Scrub:
    ground = joined.ground
    return Scrub(
        partitions,
        integrity,
        ground.conditions,
        settings=lambda: ScrubSettings(
            bytes_per_second=joined.int_config("log.scrub.bytes.per.second"),
            interval_ms=joined.int_config("log.scrub.interval.ms"),
        ),
        disk=ground.disk,
        clock=ground.clock,
        loop=ground.loop,
        executor=ground.executor,
        on_failure=ground.end.fail,
    )
