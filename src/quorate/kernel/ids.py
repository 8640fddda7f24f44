"""Identifiers that travel through every layer, and the names of leaders made of them.

Each id is a ``NewType``, so that the type checker refuses a partition index where a node id is meant.
"""

from base64 import urlsafe_b64encode
from typing import NamedTuple, NewType
from uuid import UUID

import msgspec

NodeId = NewType("NodeId", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
PartitionIndex = NewType("PartitionIndex", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerEpoch = NewType("BrokerEpoch", int)
#: Of the metadata quorum; has nothing to do with the leader epochs of partitions.
Term = NewType("Term", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
TransactionalId = NewType("TransactionalId", str)
GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
#: Of a node's data folder, chosen when that was made: shows whether a node still has what it has acknowledged.
DirectoryId = NewType("DirectoryId", UUID)

NO_NODE = NodeId(-1)
#: Kafka's messages have four bytes for it.
MAX_NODE_ID = NodeId(2**31 - 1)
NO_TOPIC_ID = TopicId(UUID(int=0))
NO_LEADER_EPOCH = LeaderEpoch(-1)
NO_PRODUCER_ID = ProducerId(-1)
NO_PRODUCER_EPOCH = ProducerEpoch(-1)
NO_DIRECTORY = DirectoryId(UUID(int=0))


class TopicPartition(NamedTuple):
    """A partition's name. ``metadata.core.image.TopicIdPartition`` also has the topic's id, so that it cannot mean a
    later topic of the same name."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_same_directory(one: DirectoryId, other: DirectoryId) -> bool:
    """Whether two ids may be of the same data folder; an unknown id may be of any."""
    return one == other or NO_DIRECTORY in (one, other)


# The two leaderships of a cluster are two types that nothing converts into each other: "am I the quorum leader?" asked
# where "do I lead this partition?" is meant does not pass the type checker.


class QuorumLeader(msgspec.Struct, frozen=True):
    """The one node that leads the metadata quorum in a term."""

    node_id: NodeId
    term: Term


class PartitionLeader(msgspec.Struct, frozen=True):
    """The one node that takes the writes of a partition in a leader epoch."""

    node_id: NodeId
    leader_epoch: LeaderEpoch


def new_cluster_id(uuid: UUID) -> str:
    """As Kafka writes ids: URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


class EpochEnd(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """Where a leader epoch ends in a log (OffsetForLeaderEpoch). Whoever asks for an epoch that the log does not have
    is told of the largest one below it; of -1 where there is none.
    """

    leader_epoch: LeaderEpoch
    end_offset: Offset  # After the epoch's last record; -1 where the log cannot tell.
