"""A picture of the cluster, taken while replicas move: what goes is never taken for what stays."""

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from quorate.cli.cluster.description import describe_image
from quorate.cli.cluster.rebalance import carry_out
from quorate.client.admin.brokers import BrokerList, RegisteredBroker
from quorate.client.admin.topics import OngoingReassignment
from quorate.client.cluster_metadata import PartitionMetadata, TopicMetadata
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName, TopicPartition
from quorate.metadata.core.commands import PartitionReassignment

ORDERS, FIRST = TopicName("orders"), PartitionIndex(0)
OLD = tuple(map(NodeId, (7, 100, 900)))
BOTH = tuple(map(NodeId, (7, 100, 5000, 900)))
NEW = tuple(map(NodeId, (7, 100, 5000)))
MOVE = OngoingReassignment(replicas=BOTH, adding=(NodeId(5000),), removing=(NodeId(900),))


class MovingCluster:
    """Takes a step of its move with every question."""

    def __init__(self, *steps: tuple[tuple[NodeId, ...], OngoingReassignment | None]) -> None:
        self._steps = list(steps)
        self.reassignments = SimpleNamespace(ongoing=self._ongoing, alter=self._alter)
        self.cluster = SimpleNamespace(metadata=self._metadata)
        self.brokers = SimpleNamespace(registered=_brokers)

    def _step(self) -> tuple[tuple[NodeId, ...], OngoingReassignment | None]:
        return self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]

    def _ongoing(self) -> dict[TopicPartition, OngoingReassignment]:
        _, move = self._step()
        return {} if move is None else {TopicPartition(ORDERS, FIRST): move}

    def _metadata(self) -> Any:
        replicas, _ = self._step()
        partition = PartitionMetadata(
            index=FIRST, leader=NodeId(7), leader_epoch=LeaderEpoch(1), replicas=replicas, isr=replicas
        )
        topic = TopicMetadata(name=ORDERS, topic_id=TopicId(UUID(int=1)), partitions={FIRST: partition})
        return SimpleNamespace(topics={ORDERS: topic})

    def _alter(self, _: object) -> None:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "The replication factor would change.")


def _brokers() -> BrokerList:
    known = {
        node: RegisteredBroker(node_id=node, address=Address("host", 9092), rack=None, is_fenced=False) for node in BOTH
    }
    return BrokerList(cluster_id="c", brokers=known)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        pytest.param([(OLD, None), (BOTH, MOVE)], NEW, id="it begins after the first question"),
        pytest.param([(BOTH, MOVE), (BOTH, MOVE), (NEW, None)], NEW, id="it ends after the second question"),
        pytest.param([(OLD, None)], OLD, id="nothing moves"),
    ],
)
def test_the_replicas_to_be_are_known_whenever_a_move_begins_or_ends(
    steps: list[tuple[tuple[NodeId, ...], OngoingReassignment | None]], expected: tuple[NodeId, ...]
) -> None:
    image = describe_image(cast(KafkaClient, MovingCluster(*steps)))
    state = image.partition(ORDERS, FIRST)
    assert state is not None
    assert state.target_replicas == expected


def test_a_plan_that_the_cluster_has_outrun_says_what_to_do() -> None:
    plan = [PartitionReassignment(topic=ORDERS, partition=FIRST, replicas=BOTH)]
    with pytest.raises(QuorateError, match="run the command again"):
        carry_out(cast(KafkaClient, MovingCluster((OLD, None))), plan)
