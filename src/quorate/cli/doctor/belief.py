"""What the nodes believe, put together: of each partition the newest claim, which is what gets tried."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from quorate.cli.doctor.facts import LeaderClaim, NodeAnswers, claim_of
from quorate.client.cluster_metadata import PartitionMetadata
from quorate.kernel.ids import NodeId, TopicId, TopicPartition

T = TypeVar("T")


class Belief(msgspec.Struct, frozen=True, kw_only=True):
    """The newest that is said of a partition."""

    topic_id: TopicId
    metadata: PartitionMetadata
    #: Who says so, in order.
    nodes: tuple[NodeId, ...]

    @property
    def claim(self) -> LeaderClaim:
        return claim_of(self.metadata)


def newest_beliefs(answers: Sequence[NodeAnswers]) -> dict[TopicPartition, Belief]:
    """The claim with the highest epoch; among those, what most nodes say, and then what the lowest node id says."""
    said: dict[TopicPartition, list[tuple[NodeId, TopicId, PartitionMetadata]]] = {}
    for answer in sorted(answers, key=lambda each: each.node_id):
        for name, topic_id, partition in answer.partitions():
            said.setdefault(name, []).append((answer.node_id, topic_id, partition))
    return {name: _newest(each) for name, each in sorted(said.items())}


def _newest(said: Sequence[tuple[NodeId, TopicId, PartitionMetadata]]) -> Belief:
    epoch = max(partition.leader_epoch for _, _, partition in said)
    newest = [each for each in said if each[2].leader_epoch == epoch]
    leader = _most_common(partition.leader for _, _, partition in newest)
    agreeing = [each for each in newest if each[2].leader == leader]
    topic_id, metadata = _most_common((topic_id, partition) for _, topic_id, partition in agreeing)
    return Belief(topic_id=topic_id, metadata=metadata, nodes=tuple(node for node, _, _ in agreeing))


def _most_common(values: Iterable[T]) -> T:
    return Counter(values).most_common(1)[0][0]
