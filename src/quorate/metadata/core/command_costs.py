"""How much work a decision is, about: what is decided at once, and what is better left to a worker.

The unit is a partition that is looked at or changed, a few microseconds.
"""

from collections.abc import Sequence

from quorate.metadata.core import commands as c
from quorate.metadata.core.image import MetadataImage

#: Each command sees those before it on an image of its own, with new tables of the topics.
_TOPICS_PER_UNIT = 50


def cost_of(image: MetadataImage, commands: Sequence[c.Command]) -> int:
    between = len(image.topics) // _TOPICS_PER_UNIT
    return sum(_cost(image, command) for command in commands) + (len(commands) - 1) * between


def _cost(image: MetadataImage, command: c.Command) -> int:
    match command:
        case c.CreateTopic(partition_count=count, assignments=assignments):
            return max(1, count, len(assignments or ()))
        case c.CreatePartitions(total_count=count):
            return max(1, count)
        case c.DeleteTopic(topic_id=topic_id):
            topic = image.topic_by_id(topic_id)
            return 1 if topic is None else 1 + len(topic.partitions)
        case c.AlterIsr(changes=changes):
            return len(changes)
        case c.ElectLeaders(partitions=partitions):
            return _all_partitions(image) if partitions is None else len(partitions)
        case c.AlterPartitionReassignments(reassignments=reassignments):
            return len(reassignments)
        case c.RebalancePartitions():
            return _all_partitions(image)
        case _:
            node = getattr(command, "node_id", None)
            return 1 if node is None else 1 + image.replica_count(node)


def _all_partitions(image: MetadataImage) -> int:
    return sum(len(topic.partitions) for topic in image.topics.values())
