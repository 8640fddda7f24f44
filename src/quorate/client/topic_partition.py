"""A partition's full name: its topic and its index."""

from typing import NamedTuple

from quorate.kernel.ids import PartitionIndex, TopicName


class TopicPartition(NamedTuple):
    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
