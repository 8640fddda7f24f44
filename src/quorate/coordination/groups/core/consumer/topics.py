"""What the coordinator must know of the cluster's topics to assign their partitions."""

import hashlib
from collections.abc import Iterable
from typing import Protocol

import msgspec

from quorate.kernel.ids import TopicId, TopicName


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
        """The version that last brought or took away a topic."""
        ...

    def shape(self, name: TopicName) -> TopicShape | None: ...
    def name_of(self, topic_id: TopicId) -> TopicName | None: ...
    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        """The topics whose names match; None where nobody has looked yet: that takes too long to be done here."""
        ...


class NoTopics:
    """Before the broker has said anything."""

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
