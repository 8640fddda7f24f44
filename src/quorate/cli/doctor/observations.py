"""What was seen of a cluster in one look: what every node said, and what it did when a claim was tried on it.

Nodes may say different things of one partition. ``newest_claims`` is what gets tried: of each partition the claim with
the highest leader epoch.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

import msgspec

from quorate.client.admin.brokers import NodeCondition
from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, PartitionMetadata
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, LeaderEpoch, NodeId, Term, TopicId, TopicPartition

T = TypeVar("T")


class LeaderClaim(msgspec.Struct, frozen=True):
    """Who leads a partition, as somebody says."""

    #: None for "nobody".
    leader: NodeId | None
    leader_epoch: LeaderEpoch

    def __str__(self) -> str:
        leader = "no leader" if self.leader is None else f"leader {self.leader}"
        return leader if self.leader_epoch < 0 else f"{leader} (epoch {self.leader_epoch})"


class QuorumClaim(msgspec.Struct, frozen=True):
    """Who leads the quorum. None for nobody, or nobody that can be reached."""

    leader: NodeId | None
    term: Term


class NodeAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What one node says."""

    node: LiveBroker
    metadata: ClusterMetadata
    #: All brokers that it knows and whether they are fenced; empty where it is too old to tell.
    fenced: Mapping[NodeId, bool] = {}
    #: None where it does not tell: too old, or the asker has no right to know.
    quorum: QuorumClaim | None = None
    #: What it reports about itself.
    conditions: Sequence[NodeCondition] = ()

    @property
    def node_id(self) -> NodeId:
        return self.node.node_id

    def partitions(self) -> Iterator[tuple[TopicPartition, TopicId, PartitionMetadata]]:
        for topic in self.metadata.topics.values():
            for index, partition in topic.partitions.items():
                yield TopicPartition(topic.name, index), topic.topic_id, partition


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """A node that others know of, and that did not answer."""

    node: LiveBroker
    reason: str


class Attempt(StrEnum):
    FETCH = "a fetch"
    WRITE = "a write"
    GROUP_REQUEST = "a group request"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One claim, tried on one node."""

    node_id: NodeId
    attempt: Attempt
    partition: TopicPartition
    #: The newest claim that any node made when it was tried.
    claim: LeaderClaim
    outcome: ErrorCode
    #: Whom the node named instead (KIP-951); None where it named nobody.
    hint: LeaderClaim | None = None
    #: Whether the version of the request had room for such a hint.
    has_room_for_hint: bool = False


class FoundCoordinator(msgspec.Struct, frozen=True, kw_only=True):
    """Whom one node names as the coordinator of a group."""

    node_id: NodeId
    group_id: GroupId
    #: The partition of __consumer_offsets that keeps the group.
    partition: TopicPartition
    outcome: ErrorCode
    coordinator: NodeId


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was seen of a cluster at one time."""

    answers: Sequence[NodeAnswers]
    silences: Sequence[Silence] = ()
    trials: Sequence[Trial] = ()
    coordinators: Sequence[FoundCoordinator] = ()
    #: ``min.insync.replicas`` of each topic, as far as it is known.
    min_isr: Mapping[str, int] = {}
    #: Bootstrap servers that did not answer and that no node knows.
    lost_bootstrap_servers: Sequence[Address] = ()

    @property
    def node_ids(self) -> set[NodeId]:
        """Of all that are known, whether they answered or not."""
        silent = {silence.node.node_id for silence in self.silences}
        return silent.union(answer.node_id for answer in self.answers)


def claim_of(partition: PartitionMetadata) -> LeaderClaim:
    return LeaderClaim(partition.leader, partition.leader_epoch)


class NewestClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Of a partition: the claim with the highest leader epoch, with what comes with it, and who makes it."""

    topic_id: TopicId
    metadata: PartitionMetadata
    #: Who says so, in order.
    nodes: tuple[NodeId, ...]

    @property
    def claim(self) -> LeaderClaim:
        return claim_of(self.metadata)


def newest_claims(answers: Sequence[NodeAnswers]) -> dict[TopicPartition, NewestClaim]:
    """The claim with the highest epoch; among those, what most nodes say, and then what the lowest node id says."""
    said: dict[TopicPartition, list[tuple[NodeId, TopicId, PartitionMetadata]]] = {}
    for answer in sorted(answers, key=lambda each: each.node_id):
        for name, topic_id, partition in answer.partitions():
            said.setdefault(name, []).append((answer.node_id, topic_id, partition))
    return {name: _newest(each) for name, each in sorted(said.items())}


def _newest(said: Sequence[tuple[NodeId, TopicId, PartitionMetadata]]) -> NewestClaim:
    epoch = max(partition.leader_epoch for _, _, partition in said)
    newest = [each for each in said if each[2].leader_epoch == epoch]
    leader = _most_common(partition.leader for _, _, partition in newest)
    agreeing = [each for each in newest if each[2].leader == leader]
    topic_id, metadata = _most_common((topic_id, partition) for _, topic_id, partition in agreeing)
    return NewestClaim(topic_id=topic_id, metadata=metadata, nodes=tuple(node for node, _, _ in agreeing))


def _most_common(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]
