"""The partitions of this node: opened, reconfigured and deleted as the metadata says, and looked up by requests."""

import logging
from collections.abc import Iterator
from uuid import UUID

from quorate.broker.config import Durability
from quorate.broker.group_commit import GroupCommit
from quorate.broker.partition import OfflinePartition, Partition
from quorate.broker.partition_settings import partition_settings
from quorate.kernel.disk import Disk
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from quorate.metadata.effective_configs import BrokerView
from quorate.metadata.image import Delta, MetadataImage, TopicPartition
from quorate.storage.checkpoints import read_topic_id, write_topic_id
from quorate.storage.log import PartitionLog

logger = logging.getLogger(__name__)


class Partitions:
    def __init__(
        self,
        *,
        disk: Disk,
        data_dir: str,
        view: BrokerView,
        durability: Durability,
        group_commit: GroupCommit,
    ) -> None:
        self._disk = disk
        self._data_dir = data_dir
        self._view = view
        self._durability = durability
        self._group_commit = group_commit
        self._image = MetadataImage()
        self._by_name: dict[tuple[TopicName, PartitionIndex], Partition | OfflinePartition] = {}

    def __iter__(self) -> Iterator[Partition]:
        """The partitions that can be served."""
        return (p for p in list(self._by_name.values()) if isinstance(p, Partition) and p.failure is None)

    def led(self, topic: TopicName, index: PartitionIndex) -> Partition:
        """The partition, which this node leads; otherwise the error that the client is to see."""
        partition = self._by_name.get((topic, index))
        if partition is None:
            if self._image.partition(topic, index) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if isinstance(partition, OfflinePartition):
            raise partition.failure
        if partition.failure is not None:
            raise partition.failure
        return partition

    def led_by_id(self, topic_id: UUID, index: int) -> Partition:
        name = self._image.topic_names.get(TopicId(topic_id))
        if name is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.led(name, PartitionIndex(index))

    def metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        """Carry out what a metadata change means for this node."""
        self._image = image
        for topic in delta.deleted_topics:
            for index in topic.partitions:
                self._delete(TopicPartition(topic.topic_id, topic.name, index))
        for identity in delta.changed_partitions:
            self._change(identity)
        if delta.brokers_reconfigured:
            self._reconfigure(set(image.topics))
        elif delta.reconfigured_topics:
            self._reconfigure(set(delta.reconfigured_topics))

    def close(self) -> None:
        """Close every log, so that the next start has nothing to check."""
        for partition in self:
            try:
                partition.log.close()
            except KafkaError as error:
                logger.error("log not closed cleanly partition=%s error=%s", partition, error)
        self._by_name.clear()

    def _change(self, identity: TopicPartition) -> None:
        state = self._image.partition(identity.topic, identity.partition)
        assert state is not None
        if self._view.node_id not in state.replicas:
            return
        existing = self._by_name.get((identity.topic, identity.partition))
        if isinstance(existing, Partition) and existing.failure is None:
            existing.become_leader(state.leader_epoch)
        else:
            self._by_name[identity.topic, identity.partition] = self._open(identity, state.leader_epoch)

    def _open(self, identity: TopicPartition, leader_epoch: LeaderEpoch) -> Partition | OfflinePartition:
        directory = f"{self._data_dir}/{identity.topic}-{identity.partition}"
        try:
            self._set_aside_stray(directory, identity.topic_id)
            settings = partition_settings(self._image, self._view, identity.topic)
            log = PartitionLog.open(self._disk, directory, settings.log)
            if read_topic_id(self._disk, directory) is None:
                write_topic_id(self._disk, directory, identity.topic_id)
            log.assign_epoch_start(leader_epoch)
        except (OSError, KafkaError) as error:
            logger.error("log not opened partition=%s-%s error=%s", identity.topic, identity.partition, error)
            return OfflinePartition(identity, KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)))
        return Partition(
            identity, log, settings, leader_epoch, durability=self._durability, group_commit=self._group_commit
        )

    def _set_aside_stray(self, directory: str, topic_id: TopicId) -> None:
        """A folder left by an earlier topic of the same name is kept out of the way, and never mixed with this one."""
        found = read_topic_id(self._disk, directory)
        if found is not None and found != topic_id:
            logger.warning("stray log set aside directory=%s topic_id=%s", directory, found)
            self._disk.rename(directory, f"{directory}.{found.hex}-stray")

    def _delete(self, identity: TopicPartition) -> None:
        partition = self._by_name.pop((identity.topic, identity.partition), None)
        if isinstance(partition, Partition):
            partition.retire(KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), then=partition.log.delete)

    def _reconfigure(self, topics: set[TopicName]) -> None:
        settings = {topic: partition_settings(self._image, self._view, topic) for topic in topics}
        for (topic, _), partition in self._by_name.items():
            if topic in settings and isinstance(partition, Partition):
                partition.reconfigure(settings[topic])
