"""Topics and their partitions, as consumer groups and their assignors see them.

Partitions are named by topic id, so that a topic made anew is another one.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from quorate.kernel.ids import PartitionIndex, TopicId, TopicName


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


class TopicShape(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partition_count: int


class ClusterTopics(Protocol):
    """A view of the topics at one version of the cluster's metadata."""

    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""
        ...

    @property
    def names_version(self) -> int:
        """The version that last brought or took away a topic, or changed who may know of one."""
        ...

    def shape(self, name: TopicName) -> TopicShape | None: ...
    def name_of(self, topic_id: TopicId) -> TopicName | None: ...
    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        """The topics whose names match; None where nobody has looked yet: that takes too long to be done here.

        Also None where it depends on who asks.
        """
        ...


class Matches(msgspec.Struct, frozen=True, kw_only=True):
    """What patterns match of the topics that somebody may know of."""

    names_version: int
    by_pattern: Mapping[str, frozenset[TopicName]]


class VisibleTopics:
    """All topics, but patterns match as somebody may know."""

    def __init__(self, topics: ClusterTopics, matches: Matches) -> None:
        self._topics = topics
        self._matches = matches

    @property
    def version(self) -> int:
        return self._topics.version

    @property
    def names_version(self) -> int:
        return self._topics.names_version

    def shape(self, name: TopicName) -> TopicShape | None:
        return self._topics.shape(name)

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return self._topics.name_of(topic_id)

    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        return self._matches.by_pattern.get(pattern) if self._matches.names_version == self.names_version else None


class NoTopics:
    """Before the cluster's metadata is known."""

    version = -1
    names_version = -1

    def shape(self, name: TopicName) -> TopicShape | None:  # noqa: ARG002 - the port's signature
        return None

    def name_of(self, topic_id: TopicId) -> TopicName | None:  # noqa: ARG002 - the port's signature
        return None

    def matching(self, pattern: str) -> frozenset[TopicName] | None:  # noqa: ARG002 - the port's signature
        return None


def metadata_hash(topics: ClusterTopics, subscribed: Iterable[TopicName]) -> int:
    """Differs where the subscribed topics or their partitions do (KIP-1101); 0 where none of them exists."""
    digest = hashlib.blake2b(digest_size=8)
    found = False
    for name in sorted(subscribed):
        shape = topics.shape(name)
        if shape is not None:
            found = True
            digest.update(f"{name}\n{shape.partition_count}\n".encode() + shape.topic_id.bytes)
    return int.from_bytes(digest.digest(), signed=True) if found else 0
