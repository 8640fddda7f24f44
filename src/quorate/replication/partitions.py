"""The replicas on this node: opened, given their role, reconfigured and deleted as the metadata says.

A change of the metadata only notes which partitions it concerns. Each of them is then looked at, a few in each turn of
the loop, and made what the newest image says; opening and removing logs is left to worker threads. Until a replica is
open it answers NOT_LEADER_OR_FOLLOWER, which clients try again. Changes that come meanwhile are seen when it is open.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from typing import Protocol
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset, PartitionIndex, PartitionLeader, TopicId, TopicName
from quorate.kernel.ports import Disk
from quorate.kernel.settings import Durability
from quorate.kernel.turns import Backlog
from quorate.metadata.core.effective_configs import BrokerView
from quorate.metadata.core.image import Delta, MetadataImage, PartitionState, TopicIdPartition, difference
from quorate.metadata.store import LeadershipListener, MetadataStore
from quorate.replication.core.leader import LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import LiveBrokersChanged, MembershipChanged, PartitionMembership
from quorate.replication.core.messages import PartitionKey
from quorate.replication.disk_room import DiskRoom
from quorate.replication.following import follow
from quorate.replication.group_commit import GroupCommit
from quorate.replication.leading import Leading, lead
from quorate.replication.partition import IntegrityPort, OfflinePartition, Partition
from quorate.replication.partition_logs import PartitionLogs
from quorate.replication.partition_settings import PartitionSettings, partition_settings
from quorate.replication.replication import NodeReplication
from quorate.storage.log import PartitionLog

logger = logging.getLogger(__name__)

PartitionName = tuple[TopicName, PartitionIndex]

#: Partitions whose roles have changed, in one line of the log.
_NAMED_IN_LINE = 3


class PartitionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    data_dir: str
    view: BrokerView
    durability: Durability
    #: Shared by all: whether the node's disk takes records.
    room: DiskRoom


class Partitions:
    def __init__(
        self,
        config: PartitionsConfig,
        disk: Disk,
        group_commit: GroupCommit,
        integrity: IntegrityPort,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._integrity = integrity
        self._view = config.view
        self._durability = config.durability
        self._room = config.room
        self._group_commit = group_commit
        self._loop = loop
        self._on_failure = on_failure
        self._image = MetadataImage()
        self._by_name: dict[PartitionName, Partition | OfflinePartition] = {}
        self._logs = PartitionLogs(
            config.data_dir,
            config.view.node_id,
            disk,
            durability=config.durability,
            loop=loop,
            executor=executor,
            on_failure=on_failure,
        )
        #: Being opened, or gone from here while their folders are still there: looked at again when that is done.
        self._busy: set[PartitionName] = set()
        #: Elected unclean since the replica was last given its role.
        self._unclean: set[PartitionName] = set()
        self._changed: Backlog[PartitionName] = Backlog(loop, self._look_at, on_failure)
        #: Replicas that go away, and whether a committed record says so.
        self._doomed: Backlog[tuple[Partition, bool]] = Backlog(loop, self._retire, on_failure)
        self._reconfigured: Backlog[PartitionName] = Backlog(loop, self._reconfigure, on_failure)
        self._unsettled = UnsettledPartitions(loop)
        #: By topic, while its configs stay what they are.
        self._settings: dict[TopicName, PartitionSettings] = {}
        self._is_closed = False

    def connect(self, replication: NodeReplication) -> None:
        self._replication = replication
        self._roles = roles = PartitionRoles(self._view.node_id, self._durability, replication)
        self._to_tell_of_brokers = Backlog(self._loop, roles.tell_of_brokers, self._on_failure)

    def on_role_changed(self, listener: LeadershipListener) -> None:
        """Have the listener called when a replica here has its new role: with its leader, None where it has none."""
        self._roles.subscribe(listener)

    async def opened(self, topics: Iterable[TopicName], timeout_s: float) -> None:
        """Return when the replicas that this node has of the topics are what the image says, or after the time."""
        await self._unsettled.wait_for(topics, timeout_s)

    async def start(self, metadata: MetadataStore) -> None:
        """Make this node what the image says, now and after every change; returns when every log is open."""
        await self._logs.clear_what_left(metadata.image)
        image = metadata.image
        self.metadata_changed(image, difference(MetadataImage(), image))
        metadata.subscribe(self.metadata_changed)
        await self._unsettled.wait_for_all()
        self._logs.begin_serving()

    def __iter__(self) -> Iterator[Partition]:
        """The replicas that work."""
        return (p for p in list(self._by_name.values()) if isinstance(p, Partition) and p.failure is None)

    def led(self, topic: TopicName, index: PartitionIndex) -> Partition:
        """The partition, which this node leads; otherwise the error that the client is to see."""
        partition = self.replica(topic, index)
        if not isinstance(partition.role, Leading):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return partition

    def replica(self, topic: TopicName, index: PartitionIndex) -> Partition:
        """The partition, of which this node has a working replica."""
        partition = self._by_name.get((topic, index))
        if partition is None:
            if self._image.partition(topic, index) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.failure is not None:
            raise partition.failure.again()
        assert isinstance(partition, Partition)
        return partition

    def own_leadership(self, topic: TopicName, index: PartitionIndex) -> PartitionLeader | None:
        """The leadership of the partition that this node has taken up; None where it has none."""
        partition = self._by_name.get((topic, index))
        if isinstance(partition, Partition) and isinstance(partition.role, Leading) and partition.failure is None:
            return PartitionLeader(self._view.node_id, partition.leader_epoch)
        return None

    def replica_by_id(self, topic_id: UUID, index: int) -> Partition:
        return self.replica(self._name(topic_id), PartitionIndex(index))

    def led_by_key(self, key: PartitionKey) -> Partition:
        topic_id, index = key
        return self.led(self._name(topic_id), PartitionIndex(index))

    def _name(self, topic_id: UUID) -> TopicName:
        name = self._image.topic_names.get(TopicId(topic_id))
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        """Carry out what a metadata change means for this node: at once where it is small."""
        if self._is_closed:
            return
        self._image = image
        for topic in (*delta.reconfigured_topics, *(topic.name for topic in delta.deleted_topics)):
            self._settings.pop(topic, None)
        if delta.changed_brokers:
            self._brokers_changed()
        deleted = [(topic.name, index) for topic in delta.deleted_topics for index in topic.partitions]
        names = [*deleted, *((changed.topic, changed.partition) for changed in delta.changed_partitions)]
        self._unclean.update((elected.topic, elected.partition) for elected in delta.unclean_elections)
        self._unsettled.add(names)
        self._doom(deleted)
        self._changed.run(names)
        self._reconfigure_all(delta)

    async def close(self) -> None:
        """Close every log, so that the next start has nothing to check."""
        self._is_closed = True
        for backlog in (self._changed, self._reconfigured):
            backlog.clear()
        await self._logs.close([(partition.identity, partition.log) for partition in self])
        self._by_name.clear()

    def _brokers_changed(self) -> None:
        own = self._view.node_id
        epochs = {
            broker.node_id: broker.broker_epoch
            for broker in self._image.brokers.values()
            # A leader whose disk is full still looks for a replica with room that may take over.
            if broker.is_active and (broker.has_room or broker.node_id == own)
        }
        if epochs != self._roles.broker_epochs:
            self._roles.broker_epochs = epochs
            self._to_tell_of_brokers.run(self)

    def _look_at(self, name: PartitionName) -> None:
        """Bring the replica a step nearer to what the image says."""
        if name not in self._busy:
            self._reconcile(name)
        if name not in self._busy and self._unsettled.settle(name) and not self._unsettled:
            self._roles.log_changes(self._image.version)

    def _reconcile(self, name: PartitionName) -> None:
        topic = self._image.topics.get(name[0])
        state = None if topic is None else topic.partitions.get(name[1])
        local = self._by_name.get(name)
        if topic is None or state is None or self._view.node_id not in state.replicas:
            self._doom([name])
        elif local is None:
            self._open(TopicIdPartition(topic.topic_id, *name))
        elif local.identity.topic_id != topic.topic_id:
            self._doom([name])
        elif isinstance(local, Partition):
            self._give_role(local, state)

    def _give_role(self, partition: Partition, state: PartitionState) -> None:
        name = partition.identity.topic, partition.identity.partition
        elected_unclean = name in self._unclean
        self._unclean.discard(name)
        self._roles.give(partition, state, elected_unclean=elected_unclean)

    def _open(self, identity: TopicIdPartition) -> None:
        self._busy.add((identity.topic, identity.partition))
        config = self._settings_of(identity.topic).log
        self._logs.open(identity, config, self._image, partial(self._opened, identity))

    def _opened(self, identity: TopicIdPartition, log: PartitionLog | KafkaError) -> None:
        """If the replica was taken away meanwhile, its new log goes too."""
        name = identity.topic, identity.partition
        state = self._image.partition(*name)
        is_wanted = state is not None and self._view.node_id in state.replicas
        if not is_wanted or self._image.topics[identity.topic].topic_id != identity.topic_id:
            if isinstance(log, PartitionLog):
                self._clear(identity, log, is_removed=self._was_removed(identity))
                return
        elif isinstance(log, KafkaError):
            self._by_name[name] = OfflinePartition(identity, log.again())
        else:
            self._by_name[name] = self._partition(identity, log)
        self._is_free(name)

    def _partition(self, identity: TopicIdPartition, log: PartitionLog) -> Partition:
        settings = self._settings_of(identity.topic)
        log.update_config(settings.log)
        return Partition(
            identity,
            log,
            settings,
            durability=self._durability,
            group_commit=self._group_commit,
            replication=self._replication,
            room=self._room,
            integrity=self._integrity,
        )

    def _doom(self, names: Iterable[PartitionName]) -> None:
        """Nobody finds these replicas from now on, not even under the name of a topic that was made anew."""
        doomed = []
        for name in names:
            partition = self._by_name.pop(name, None)
            if isinstance(partition, Partition):
                self._busy.add(name)
                doomed.append((partition, self._was_removed(partition.identity)))
        self._doomed.run(doomed)

    def _was_removed(self, identity: TopicIdPartition) -> bool:
        """Whether the image says so, and does not merely lack the replica."""
        return self._image.was_removed(identity.topic_id, identity.partition, self._view.node_id)

    def _retire(self, doomed: tuple[Partition, bool]) -> None:
        partition, is_removed = doomed
        is_deleted = partition.identity.topic_id not in self._image.topic_names
        self._roles.take(partition)
        partition.retire(
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_deleted else ErrorCode.NOT_LEADER_OR_FOLLOWER),
            then=partial(self._clear, partition.identity, partition.log, is_removed=is_removed),
        )

    def _clear(self, identity: TopicIdPartition, log: PartitionLog, *, is_removed: bool) -> None:
        """The log can go. If the partition has come back here meanwhile, or another of its name, it starts empty."""
        away = self._logs.remove if is_removed else self._logs.set_aside
        away(identity, log, partial(self._is_free, (identity.topic, identity.partition)))

    def _is_free(self, name: PartitionName) -> None:
        self._busy.discard(name)
        self._look_at(name)

    def _settings_of(self, topic: TopicName) -> PartitionSettings:
        settings = self._settings.get(topic)
        if settings is None:
            settings = self._settings[topic] = partition_settings(self._image, self._view, topic)
        return settings

    def _reconfigure_all(self, delta: Delta) -> None:
        if delta.brokers_reconfigured:
            self._settings.clear()
            self._reconfigured.run(list(self._by_name))
        elif delta.reconfigured_topics:
            topics = set(delta.reconfigured_topics)
            self._reconfigured.run([name for name in self._by_name if name[0] in topics])

    def _reconfigure(self, name: PartitionName) -> None:
        partition = self._by_name.get(name)
        if isinstance(partition, Partition) and name[0] in self._image.topics:
            partition.reconfigure(self._settings_of(name[0]))


class UnsettledPartitions:
    """Which replicas are not yet what the metadata image says, and who waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_topic: dict[TopicName, set[PartitionIndex]] = {}
        #: Those who wait for a topic, or with None for all of them.
        self._waiting: dict[TopicName | None, list[asyncio.Future[None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, names: Iterable[PartitionName]) -> None:
        for topic, index in names:
            self._by_topic.setdefault(topic, set()).add(index)

    def settle(self, name: PartitionName) -> bool:
        """Whether the replica was unsettled until now."""
        topic, index = name
        indexes = self._by_topic.get(topic)
        if indexes is None or index not in indexes:
            return False
        indexes.remove(index)
        if not indexes:
            del self._by_topic[topic]
            self._wake(topic)
            if not self._by_topic:
                self._wake(None)
        return True

    async def wait_for(self, topics: Iterable[TopicName], timeout_s: float) -> None:
        """Return when all of the topics are settled, or after the time."""
        futures = [self._future(topic) for topic in topics if topic in self._by_topic]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)

    async def wait_for_all(self) -> None:
        if self._by_topic:
            await self._future(None)

    def _future(self, topic: TopicName | None) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(topic, []).append(future)
        return future

    def _wake(self, topic: TopicName | None) -> None:
        for future in self._waiting.pop(topic, ()):
            if not future.done():
                future.set_result(None)


class RoleReplication(Protocol):
    """What replication has to know of roles."""

    config: ReplicationConfig

    def now_ms(self) -> int: ...

    def on_leading(self, partition: Partition) -> None: ...

    def on_following(self, partition: Partition) -> None: ...

    def on_idle(self, partition: Partition) -> None: ...

    def membership_changed(self, partition: Partition) -> None: ...

    def brokers_changed(self, partition: Partition) -> None: ...


class PartitionRoles:
    """Gives replicas the role that the metadata image has for them: leader, follower, or to wait for one."""

    def __init__(self, node_id: NodeId, durability: Durability, replication: RoleReplication) -> None:
        self._node_id = node_id
        self._durability = durability
        self._replication = replication
        #: Of the brokers that may be in sync.
        self.broker_epochs: dict[NodeId, BrokerEpoch] = {}
        self._listeners: list[LeadershipListener] = []
        #: Changes since the last line in the log.
        self._led = 0
        self._followed = 0
        self._named: list[str] = []

    def subscribe(self, listener: LeadershipListener) -> None:
        self._listeners.append(listener)

    def give(self, partition: Partition, state: PartitionState, *, elected_unclean: bool) -> None:
        if partition.failure is not None:
            self._tell(partition, state)
        elif state.leader_epoch != partition.leader_epoch:
            self._begin(partition, state, elected_unclean=elected_unclean)
            self._note(partition)
            self._tell(partition, state)
        elif isinstance(partition.role, Leading):
            partition.step(MembershipChanged(membership=_membership(state)))
            self._replication.membership_changed(partition)

    def take(self, partition: Partition) -> None:
        """The replica goes away."""
        self._replication.on_idle(partition)
        for listener in self._listeners:
            listener(partition.identity.topic, partition.identity.partition, None)

    def tell_of_brokers(self, partition: Partition) -> None:
        partition.step(LiveBrokersChanged(broker_epochs=self.broker_epochs))
        self._replication.brokers_changed(partition)

    def log_changes(self, version: int) -> None:
        """One line for a change, however many partitions it concerns."""
        count = self._led + self._followed
        if count:
            logger.info(
                "roles changed node=%s version=%s leads=%s follows=%s partitions=%s%s",
                self._node_id,
                version,
                self._led,
                self._followed,
                ",".join(self._named),
                ",…" if count > _NAMED_IN_LINE else "",
            )
            self._led = self._followed = 0
            self._named.clear()

    def _begin(self, partition: Partition, state: PartitionState, *, elected_unclean: bool) -> None:
        leader = PartitionLeader(state.leader, state.leader_epoch)
        if state.leader == self._node_id:
            lead(partition, self._leader_start(leader, state), self._replication.config)
            self._replication.on_leading(partition)
        elif state.leader == NO_NODE:
            partition.wait_for_leader(state.leader_epoch)
            self._replication.on_idle(partition)
        else:
            # An operator may ask for such an election although the topic does not allow it by itself. And where the
            # operating system writes when it likes, the last replica in sync may have lost what it had.
            allows_unclean = partition.settings.allows_unclean_elections
            may_lack = allows_unclean or elected_unclean or self._durability is Durability.OS
            follow(partition, leader, is_unclean=may_lack)
            self._replication.on_following(partition)

    def _leader_start(self, leader: PartitionLeader, state: PartitionState) -> LeaderStart:
        """What the image knows; the partition knows its own offsets."""
        return LeaderStart(
            leader=leader,
            membership=_membership(state),
            broker_epochs=self.broker_epochs,
            log_end_offset=Offset(0),
            durable_offset=Offset(0),
            high_watermark=Offset(0),
            min_insync_replicas=1,
            now_ms=self._replication.now_ms(),
        )

    def _note(self, partition: Partition) -> None:
        if isinstance(partition.role, Leading):
            self._led += 1
        else:
            self._followed += 1
        if len(self._named) < _NAMED_IN_LINE:
            self._named.append(f"{partition}@{partition.leader_epoch}")

    def _tell(self, partition: Partition, state: PartitionState) -> None:
        leader = PartitionLeader(state.leader, state.leader_epoch) if state.has_leader else None
        for listener in self._listeners:
            listener(partition.identity.topic, partition.identity.partition, leader)


def _membership(state: PartitionState) -> PartitionMembership:
    return PartitionMembership(replicas=state.replicas, isr=frozenset(state.isr), partition_epoch=state.partition_epoch)
