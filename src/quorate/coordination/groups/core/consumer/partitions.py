"""Partitions as the consumer group protocol names them: by topic id, so that a topic made anew is another one."""

from collections.abc import Iterable
from typing import NamedTuple

from quorate.kernel.ids import PartitionIndex, TopicId


class AssignedPartition(NamedTuple):
    topic_id: TopicId
    partition: PartitionIndex


Partitions = frozenset[AssignedPartition]

NO_PARTITIONS: Partitions = frozenset()


def by_topic(partitions: Iterable[AssignedPartition]) -> list[tuple[TopicId, list[PartitionIndex]]]:
    """The partitions of each topic, everything in order."""
    topics: dict[TopicId, list[PartitionIndex]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())
