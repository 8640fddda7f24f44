"""What is different between two images, for a node that did not replay its way from one to the other.

A node that starts comes from the empty image; one that installs a snapshot comes from whatever it had.
"""

from collections.abc import Iterator

from quorate.metadata.core.image import Delta, MetadataImage, PartitionState, Topic, TopicIdPartition


def difference(old: MetadataImage, new: MetadataImage) -> Delta:
    """The delta that a replay from the old image to the new one would add up to, unclean elections left out."""
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
