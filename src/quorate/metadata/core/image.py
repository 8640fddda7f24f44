"""The metadata image: the state that every reader of cluster metadata sees.

An image never changes. ``MetadataImage.replay`` makes the next one from committed records, sharing whatever they did
not touch, and says in a ``Delta`` what is new. All look-ups are local reads; none waits for consensus.
"""

from collections.abc import Iterable, Iterator

from quorate.kernel.ids import (
    NodeId,
    Offset,
    PartitionIndex,
    PartitionLeader,
    TopicId,
    TopicName,
)
from quorate.metadata.core import records as r
from quorate.metadata.core.image_draft import ImageDraft
from quorate.metadata.core.image_parts import (
    Broker,
    Delta,
    HostedPartitions,
    ImageTables,
    PartitionState,
    Topic,
    TopicIdPartition,
)

_HOSTS_NOTHING = HostedPartitions()


__all__ = ["Broker", "Delta", "HostedPartitions", "MetadataImage", "PartitionState", "Topic", "TopicIdPartition"]


class MetadataImage(ImageTables, frozen=True, kw_only=True):
    """The tables of ``ImageTables``, and how they are read."""

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: TopicName, partition: PartitionIndex) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.partitions.get(partition)

    def partition_leader(self, topic: TopicName, partition: PartitionIndex) -> PartitionLeader | None:
        """The partition's leader; None where it has none, or does not exist."""
        state = self.partition(topic, partition)
        if state is None or not state.has_leader:
            return None
        return PartitionLeader(state.leader, state.leader_epoch)

    def partition_replicas(self, topic: TopicName, partition: PartitionIndex) -> tuple[NodeId, ...]:
        state = self.partition(topic, partition)
        return () if state is None else state.replicas

    def offline_replicas(self, state: PartitionState) -> tuple[NodeId, ...]:
        """The replicas on brokers that are fenced or not registered."""
        return tuple(node for node in state.replicas if not self.is_live(node))

    def was_removed(self, topic_id: TopicId, partition: PartitionIndex, node: NodeId) -> bool:
        """Whether a committed record took this replica from the node, or deleted its topic.

        False also where the image does not know the partition: only a log that was removed may be deleted.
        """
        topic = self.topic_by_id(topic_id)
        if topic is None:
            return topic_id in self.deletions.topic_ids
        state = topic.partitions.get(partition)
        return state is not None and node in state.former_replicas

    @property
    def live_brokers(self) -> tuple[Broker, ...]:
        return tuple(broker for broker in self.brokers.values() if broker.is_live)

    def is_live(self, node: NodeId) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.is_live

    def has_room(self, node: NodeId) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.has_room

    def takes_records(self, node: NodeId) -> bool:
        broker = self.brokers.get(node)
        return broker is not None and broker.takes_records

    def is_active(self, node: NodeId) -> bool:
        """Whether the node may be given leaderships and may join in-sync sets."""
        broker = self.brokers.get(node)
        return broker is not None and broker.is_active

    def hosted_partitions(self, node: NodeId) -> Iterator[tuple[TopicIdPartition, PartitionState]]:
        """Every partition that has a replica on the node, at a cost of their number only."""
        for topic_id, indexes in self.hosted.get(node, _HOSTS_NOTHING).replicas.items():
            topic = self.topics[self.topic_names[topic_id]]
            for index in sorted(indexes):
                yield TopicIdPartition(topic_id, topic.name, index), topic.partitions[index]

    def leader_count(self, node: NodeId) -> int:
        return self.hosted.get(node, _HOSTS_NOTHING).leader_count

    def replica_count(self, node: NodeId) -> int:
        return self.hosted.get(node, _HOSTS_NOTHING).replica_count

    def preferred_count(self, node: NodeId) -> int:
        return self.hosted.get(node, _HOSTS_NOTHING).preferred_count

    def replay(self, batch: Iterable[r.AnyRecord], version: Offset) -> tuple["MetadataImage", Delta]:
        """The image after the records of a committed batch, and what became different."""
        draft = ImageDraft(self)
        for record in batch:
            draft.apply(record)
        return draft.finish(version)


def difference(old: MetadataImage, new: MetadataImage) -> Delta:
    """The delta that a replay from the old image to the new one would add up to, unclean elections left out.

    For a node that did not replay its way there: one that starts comes from the empty image, one that installs a
    snapshot from whatever it had.
    """
    changed = list(_changed_partitions(old, new))
    return Delta(
        deleted_topics=tuple(topic for topic in old.topics.values() if topic.topic_id not in new.topic_names),
        changed_partitions=tuple(name for name, _, _ in changed),
        changed_leaders=tuple(
            name
            for name, before, after in changed
            if before is None or (before.leader, before.leader_epoch) != (after.leader, after.leader_epoch)
        ),
        reconfigured_topics=tuple(
            topic.name for topic in new.topics.values() if topic.configs != _configs(old.topic_by_id(topic.topic_id))
        ),
        brokers_reconfigured=old.broker_configs != new.broker_configs,
        changed_brokers=tuple(
            sorted(
                node
                for node in old.brokers.keys() | new.brokers.keys()
                if old.brokers.get(node) != new.brokers.get(node)
            )
        ),
    )


def _changed_partitions(
    old: MetadataImage, new: MetadataImage
) -> Iterator[tuple[TopicIdPartition, PartitionState | None, PartitionState]]:
    for topic in new.topics.values():
        before = old.topic_by_id(topic.topic_id)
        if before is topic:
            continue
        for index, state in topic.partitions.items():
            old_state = None if before is None else before.partitions.get(index)
            if old_state != state:
                yield TopicIdPartition(topic.topic_id, topic.name, index), old_state, state


def _configs(topic: Topic | None) -> dict[str, str]:
    return {} if topic is None else dict(topic.configs)
