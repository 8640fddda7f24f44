"""Plans that even out a cluster or empty a broker: what moves, and what stays."""

from random import Random

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    CreateTopic,
    DrainBroker,
    PartitionReassignment,
    RebalancePartitions,
    UnregisterBroker,
)
from quorate.metadata.core.image import TopicIdPartition
from quorate.metadata.core.rebalancing import _Rebalance, rebalance_plan, replacement_plan
from tests.unit.metadata.core.cluster import Cluster

MOVED = tuple(map(NodeId, (7, 100, 5000)))


def settle(cluster: Cluster) -> None:
    """Every replica that can comes into sync, so that what is under way completes."""
    for index, state in cluster.image.topics[cluster.name().topic].partitions.items():
        if state.is_reassigning:
            in_sync = [node for node in state.replicas if cluster.image.is_active(node)]
            cluster.alter_isr(cluster.isr_change(in_sync, index))


def loads(cluster: Cluster) -> dict[int, tuple[int, int]]:
    image = cluster.image
    return {node: (image.replica_count(node), image.preferred_count(node)) for node in sorted(image.brokers)}


def test_a_new_node_gets_its_share_of_replicas_and_leaders_with_the_fewest_moves() -> None:
    cluster = Cluster(nodes=(7, 100))
    cluster.do(CreateTopic(name="orders", partition_count=12, replication_factor=2))
    cluster.register(4001)

    plan = rebalance_plan(cluster.image)
    moved = [node for move in plan if move.replicas is not None for node in move.replicas if node == 4001]
    assert len(moved) == 8

    cluster.do(RebalancePartitions())
    settle(cluster)
    assert loads(cluster) == {7: (8, 4), 100: (8, 4), 4001: (8, 4)}
    assert rebalance_plan(cluster.image) == ()


def test_a_rebalance_moves_no_more_than_it_may() -> None:
    cluster = Cluster(nodes=(7, 100))
    cluster.do(CreateTopic(name="orders", partition_count=12, replication_factor=2))
    cluster.register(4001)
    cluster.do(RebalancePartitions(max_moves=3))
    assert cluster.image.replica_count(NodeId(4001)) == 3


def test_leaders_are_evened_out_without_moving_data() -> None:
    cluster = Cluster()
    cluster.create(*[(7, 100, 4001)] * 6)
    plan = rebalance_plan(cluster.image)
    cluster.do(AlterPartitionReassignments(reassignments=plan))
    assert {node: leaders for node, (_, leaders) in loads(cluster).items()} == {7: 2, 100: 2, 4001: 2}
    assert not any(cluster.state(index).is_reassigning for index in range(6))


def test_a_rebalance_keeps_replicas_on_distinct_racks() -> None:
    cluster = Cluster.with_racks({1: "a", 2: "b"})
    cluster.create(*[(1, 2)] * 8)
    cluster.register(3, rack="b")

    cluster.do(RebalancePartitions())
    settle(cluster)

    racks = {node: broker.rack for node, broker in cluster.image.brokers.items()}
    for state in cluster.image.topics[cluster.name().topic].partitions.values():
        assert len({racks[node] for node in state.replicas}) == 2
    assert {node: replicas for node, (replicas, _) in loads(cluster).items()} == {1: 8, 2: 4, 3: 4}


def test_brokers_that_are_down_are_left_out_of_a_rebalance() -> None:
    cluster = Cluster()
    cluster.create(*[(7,)] * 6)
    cluster.fence(4001)
    cluster.do(RebalancePartitions())
    settle(cluster)
    assert cluster.image.replica_count(NodeId(4001)) == 0
    assert cluster.image.replica_count(NodeId(100)) == 3


def test_a_drained_broker_holds_nothing_and_can_be_removed() -> None:
    cluster = Cluster(nodes=(7, 100, 4001, 5))
    cluster.do(CreateTopic(name="orders", partition_count=12, replication_factor=3))

    outcomes = cluster.do(DrainBroker(node_id=NodeId(7))).answer.partitions
    assert {outcome.error for outcome in outcomes} == {ErrorCode.NONE}
    again = cluster.do(DrainBroker(node_id=NodeId(7)))
    assert (again.records, again.answer.partitions) == ((), ())
    settle(cluster)

    assert cluster.image.replica_count(NodeId(7)) == 0
    assert all(len(cluster.state(index).replicas) == 3 for index in range(12))
    cluster.do(UnregisterBroker(node_id=NodeId(7)))


def test_a_dead_broker_can_be_drained() -> None:
    cluster = Cluster(nodes=(7, 100, 4001))
    cluster.create((7, 100), (100, 7))
    cluster.fence(7)
    cluster.do(DrainBroker(node_id=NodeId(7)))
    settle(cluster)
    assert [cluster.state(index).replicas for index in range(2)] == [(4001, 100), (100, 4001)]


def test_a_drain_without_a_broker_to_take_over_is_refused() -> None:
    cluster = Cluster(nodes=(7, 100))
    cluster.create((7, 100))
    refusals = [cluster.refusal(DrainBroker(node_id=NodeId(node))) for node in (7, 5)]
    assert [refusal and refusal.code for refusal in refusals] == [
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ]


def test_replicas_of_a_broker_that_is_gone_are_replaced() -> None:
    cluster = Cluster(nodes=(7, 100, 4001, 5000))
    cluster.create((5000, 7, 100), (7, 100, 4001), (100, 4001, 5000))
    cluster.do(UnregisterBroker(node_id=NodeId(5000), even_with_replicas=True))

    plan = {move.partition: move.replicas for move in replacement_plan(cluster.image)}

    assert plan == {0: (4001, 7, 100), 2: (100, 4001, 7)}
    cluster.do(RebalancePartitions())
    settle(cluster)
    assert replacement_plan(cluster.image) == ()
    assert cluster.image.replica_count(NodeId(5000)) == 0
    assert all(not cluster.state(index).is_reassigning for index in range(3))


def test_a_move_to_a_broker_that_is_gone_goes_elsewhere() -> None:
    cluster = Cluster(nodes=(7, 100, 4001, 5000))
    cluster.create((7, 100, 4001))
    move = PartitionReassignment(topic=cluster.name().topic, partition=cluster.name().partition, replicas=MOVED)
    cluster.do(AlterPartitionReassignments(reassignments=(move,)))
    cluster.do(UnregisterBroker(node_id=NodeId(5000), even_with_replicas=True))

    cluster.do(RebalancePartitions())

    assert set(cluster.state(0).replicas) == {7, 100, 4001}
    assert not cluster.state(0).is_reassigning


def test_replicas_that_nobody_can_take_stay_where_they_are_named() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001))
    cluster.do(UnregisterBroker(node_id=NodeId(4001), even_with_replicas=True))

    assert replacement_plan(cluster.image) == ()


class _Forgetful(set[tuple[NodeId, NodeId]]):
    """Remembers no pair, so that each is searched whenever it comes up."""

    def add(self, pair: tuple[NodeId, NodeId]) -> None:
        pass


@pytest.mark.parametrize("seed", range(20))
def test_no_plan_differs_because_pairs_are_searched_once(seed: int) -> None:
    random = Random(seed)
    racks = random.choice([1, 2, 3, 8])
    cluster = Cluster.with_racks({node: f"rack-{random.randrange(racks)}" for node in range(random.randint(3, 8))})
    for number in range(3):
        factor = random.randint(1, 3)
        placements = [tuple(random.sample(sorted(cluster.image.brokers), factor)) for _ in range(random.randint(1, 30))]
        cluster.create(*placements, name=f"topic-{number}")
    cluster.register(4001, rack=f"rack-{random.randrange(racks)}")
    thorough = _Rebalance(cluster.image)
    thorough._barren = _Forgetful()
    assert _Rebalance(cluster.image).plan(None) == thorough.plan(None)


def test_a_rebalance_does_not_search_in_vain_again_and_again() -> None:
    """Each partition is on all three racks, so that most nodes can give the new one nothing."""
    cluster = Cluster.with_racks({node: f"rack-{node % 3}" for node in range(12)})
    cluster.do(CreateTopic(name="orders", partition_count=400, replication_factor=3))
    cluster.register(12, rack="rack-0")
    rebalance = _Rebalance(cluster.image)
    looks = 0
    can_move = rebalance._can_move

    def counted(name: TopicIdPartition, donor: NodeId, receiver: NodeId) -> bool:
        nonlocal looks
        looks += 1
        return can_move(name, donor, receiver)

    rebalance._can_move = counted  # type: ignore[method-assign]
    moves = len(rebalance.plan(None))
    assert moves >= 80
    assert looks < 50 * 400
