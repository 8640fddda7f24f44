"""The replicas on this node: opened, given their part, reconfigured and deleted as the metadata says."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from uuid import UUID

import msgspec

from quorate.broker.config import Durability
from quorate.broker.disk_room import DiskRoom
from quorate.broker.group_commit import GroupCommit
from quorate.broker.partition import OfflinePartition, Partition
from quorate.broker.partition_folders import partition_folder, partition_index
from quorate.broker.partition_settings import partition_settings
from quorate.broker.replication.messages import PartitionKey
from quorate.broker.replication.replication import Replication
from quorate.kernel.disk import Disk
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, BrokerEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.leaders import PartitionLeader
from quorate.metadata.effective_configs import BrokerView, topic_values
from quorate.metadata.image import Delta, MetadataImage, PartitionState, TopicPartition
from quorate.replication.leader import LeaderStart
from quorate.replication.leader_events import LiveBrokersChanged, MembershipChanged, PartitionMembership
from quorate.storage.checkpoints import read_topic_id
from quorate.storage.closing import remove_log, set_aside
from quorate.storage.log import PartitionLog

logger = logging.getLogger(__name__)


class PartitionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    data_dir: str
    view: BrokerView
    durability: Durability
    #: Shared by all: whether the node's disk takes records.
    room: DiskRoom


class Partitions:
    def __init__(self, config: PartitionsConfig, disk: Disk, group_commit: GroupCommit) -> None:
        self._disk = disk
        self._data_dir = config.data_dir
        self._view = config.view
        self._durability = config.durability
        self._room = config.room
        self._group_commit = group_commit
        self._image = MetadataImage()
        self._by_name: dict[tuple[TopicName, PartitionIndex], Partition | OfflinePartition] = {}
        #: Gone from here, but a sync still writes into their folders: nothing new is opened there until it ends.
        self._retiring: set[tuple[TopicName, PartitionIndex]] = set()
        #: Those that lead or follow anew, until the log has been told.
        self._new_parts: list[Partition] = []
        #: Of the brokers that may be in sync.
        self._broker_epochs: dict[NodeId, BrokerEpoch] = {}

    def connect(self, replication: Replication) -> None:
        self._replication = replication

    def __iter__(self) -> Iterator[Partition]:
        """The replicas that work."""
        return (p for p in list(self._by_name.values()) if isinstance(p, Partition) and p.failure is None)

    def led(self, topic: TopicName, index: PartitionIndex) -> Partition:
        """The partition, which this node leads; otherwise the error that the client is to see."""
        partition = self.replica(topic, index)
        if partition.leading is None:
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
            raise partition.failure
        assert isinstance(partition, Partition)
        return partition

    def led_by_id(self, topic_id: UUID, index: int) -> Partition:
        return self.led(self._name(topic_id), PartitionIndex(index))

    def replica_by_id(self, topic_id: UUID, index: int) -> Partition:
        return self.replica(self._name(topic_id), PartitionIndex(index))

    def led_by_key(self, key: PartitionKey) -> Partition:
        return self.led_by_id(*key)

    def _name(self, topic_id: UUID) -> TopicName:
        name = self._image.topic_names.get(TopicId(topic_id))
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return name

    def metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        """Carry out what a metadata change means for this node."""
        self._image = image
        if delta.changed_brokers:
            self._brokers_changed()
        for topic in delta.deleted_topics:
            for index in topic.partitions:
                self._remove(topic.name, index, KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        unclean = frozenset(delta.unclean_elections)
        for identity in delta.changed_partitions:
            self._change(identity, elected_unclean=identity in unclean)
        self._log_new_parts()
        if delta.brokers_reconfigured:
            self._reconfigure(set(image.topics))
        elif delta.reconfigured_topics:
            self._reconfigure(set(delta.reconfigured_topics))

    def clear_what_left(self, image: MetadataImage) -> None:
        """At the start, before any log is opened: see to the logs that are no longer, or not known to be, of this node.

        Topics were deleted and replicas moved away while this node was down. What the image merely does not know may
        be the only copy left.
        """
        self._image = image
        for name in self._disk.list_directory(self._data_dir):
            directory = f"{self._data_dir}/{name}"
            index = partition_index(name)
            topic_id = None if index is None else read_topic_id(self._disk, directory)
            if index is None or topic_id is None:
                continue
            topic = self._image.topic_by_id(topic_id)
            state = None if topic is None else topic.partitions.get(index)
            if state is None or self._view.node_id not in state.replicas:
                self._clear(directory, topic_id, index)

    def close(self) -> None:
        """Close every log, so that the next start has nothing to check."""
        for partition in self:
            try:
                partition.log.close()
            except KafkaError as error:
                logger.error("log not closed cleanly partition=%s error=%s", partition, error)
        self._by_name.clear()

    def _brokers_changed(self) -> None:
        own = self._view.node_id
        epochs = {
            broker.node_id: broker.broker_epoch
            for broker in self._image.brokers.values()
            # A leader whose disk is full still looks for a replica with room that may take over.
            if broker.is_active and (broker.has_room or broker.node_id == own)
        }
        if epochs == self._broker_epochs:
            return
        self._broker_epochs = epochs
        for partition in self:
            partition.step(LiveBrokersChanged(broker_epochs=epochs))
        self._replication.brokers_changed()

    def _change(self, identity: TopicPartition, *, elected_unclean: bool) -> None:
        state = self._image.partition(identity.topic, identity.partition)
        assert state is not None
        if self._view.node_id not in state.replicas:
            self._remove(identity.topic, identity.partition, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        name = identity.topic, identity.partition
        if name in self._retiring:
            return
        partition = self._by_name.get(name)
        if partition is None:
            partition = self._by_name[name] = self._open(identity)
        if isinstance(partition, Partition) and partition.failure is None:
            self._give_part(partition, state, elected_unclean=elected_unclean)

    def _give_part(self, partition: Partition, state: PartitionState, *, elected_unclean: bool) -> None:
        if state.leader_epoch == partition.leader_epoch:
            if partition.leading is not None:
                partition.step(MembershipChanged(membership=_membership(state)))
                self._replication.membership_changed(partition)
            return
        leader = PartitionLeader(state.leader, state.leader_epoch)
        if state.leader == self._view.node_id:
            partition.lead(self._leader_start(leader, state), self._replication.config)
            self._replication.leads(partition)
        elif state.leader == NO_NODE:
            partition.wait_for_leader(state.leader_epoch)
            self._replication.rests(partition)
        else:
            topic = partition.identity.topic
            allows_unclean = bool(topic_values(self._image, self._view, topic)["unclean.leader.election.enable"])
            # An operator may ask for such an election although the topic does not allow it by itself. And where the
            # operating system writes when it likes, the last replica in sync may have lost what it had.
            may_lack = allows_unclean or elected_unclean or self._durability is Durability.OS
            partition.follow(leader, is_unclean=may_lack)
            self._replication.follows(partition)
        self._new_parts.append(partition)

    def _log_new_parts(self) -> None:
        """One line for a change, however many partitions it concerns."""
        parts, self._new_parts = self._new_parts, []
        if parts:
            led = sum(partition.leading is not None for partition in parts)
            some = ",".join(f"{partition}@{partition.leader_epoch}" for partition in parts[:3])
            logger.info(
                "parts changed node=%s version=%s leads=%s follows=%s partitions=%s%s",
                self._view.node_id,
                self._image.version,
                led,
                len(parts) - led,
                some,
                ",…" if len(parts) > 3 else "",
            )

    def _leader_start(self, leader: PartitionLeader, state: PartitionState) -> LeaderStart:
        """What the image knows; the partition knows its own offsets."""
        return LeaderStart(
            leader=leader,
            membership=_membership(state),
            broker_epochs=self._broker_epochs,
            log_end_offset=Offset(0),
            durable_offset=Offset(0),
            high_watermark=Offset(0),
            min_insync_replicas=1,
            now_ms=self._replication.now_ms(),
        )

    def _open(self, identity: TopicPartition) -> Partition | OfflinePartition:
        try:
            directory = partition_folder(self._data_dir, identity.topic, identity.partition)
        except KafkaError as reserved:
            return OfflinePartition(identity, reserved)
        try:
            self._make_way(directory, identity)
            settings = partition_settings(self._image, self._view, identity.topic)
            log = PartitionLog.open(self._disk, directory, settings.log)
            if read_topic_id(self._disk, directory) is None:
                log.store_topic_id(identity.topic_id)
        except (OSError, KafkaError) as error:
            logger.error("log not opened partition=%s-%s error=%s", identity.topic, identity.partition, error)
            return OfflinePartition(identity, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        return Partition(
            identity,
            log,
            settings,
            durability=self._durability,
            group_commit=self._group_commit,
            replication=self._replication,
            room=self._room,
        )

    def _make_way(self, directory: str, identity: TopicPartition) -> None:
        """A folder left by an earlier topic of the same name is never mixed with this one."""
        found = read_topic_id(self._disk, directory)
        if found is not None and found != identity.topic_id:
            self._clear(directory, found, identity.partition)

    def _clear(self, directory: str, topic_id: TopicId, index: PartitionIndex) -> None:
        """Delete a log that was removed from this node; keep any other out of the way."""
        if self._image.was_removed(topic_id, index, self._view.node_id):
            logger.info("log removed node=%s directory=%s topic_id=%s", self._view.node_id, directory, topic_id)
            remove_log(self._disk, directory)
        else:
            self._set_aside(directory, topic_id)

    def _set_aside(self, directory: str, topic_id: TopicId) -> None:
        stray = set_aside(self._disk, directory, topic_id)
        logger.error(
            "log set aside: the metadata does not say that it was removed node=%s directory=%s topic_id=%s kept_as=%s",
            self._view.node_id,
            directory,
            topic_id,
            stray,
        )

    def _remove(self, topic: TopicName, index: PartitionIndex, failure: KafkaError) -> None:
        partition = self._by_name.pop((topic, index), None)
        if isinstance(partition, Partition):
            self._replication.rests(partition)
            self._retiring.add((topic, index))
            is_removed = self._image.was_removed(partition.identity.topic_id, index, self._view.node_id)
            partition.retire(failure, then=partial(self._retired, partition, is_removed))

    def _retired(self, partition: Partition, is_removed: bool) -> None:
        """The log can go. If the partition has come back here meanwhile, or another of its name, it starts empty."""
        if is_removed:
            partition.log.delete()
        else:
            with suppress(KafkaError):  # Its disk fails or failed: what is there is kept as it is.
                partition.log.close()
            self._set_aside(partition.log.directory, partition.identity.topic_id)
        topic, index = partition.identity.topic, partition.identity.partition
        self._retiring.remove((topic, index))
        state = self._image.topics.get(topic)
        if state is not None and index in state.partitions:
            self._change(TopicPartition(state.topic_id, topic, index), elected_unclean=False)
            self._log_new_parts()

    def _reconfigure(self, topics: set[TopicName]) -> None:
        settings = {topic: partition_settings(self._image, self._view, topic) for topic in topics}
        for (topic, _), partition in self._by_name.items():
            if topic in settings and isinstance(partition, Partition):
                partition.reconfigure(settings[topic])


def _membership(state: PartitionState) -> PartitionMembership:
    return PartitionMembership(replicas=state.replicas, isr=frozenset(state.isr), partition_epoch=state.partition_epoch)
