"""Where the replicas of new partitions go."""

from collections import Counter

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, TopicName
from quorate.metadata.core.commands import CreatePartitions, CreateTopic
from tests.unit.metadata.core.cluster import ORDERS, Cluster

RACKS = {2: "a", 7: "a", 12: "b", 31: "b", 100: "c", 4001: "c"}


@pytest.mark.parametrize("factor", [1, 2, 3, 4])
def test_replicas_lie_on_distinct_racks_and_evenly_on_brokers(factor: int) -> None:
    cluster = Cluster.with_racks(RACKS)
    cluster.do(CreateTopic(name="orders", partition_count=12, replication_factor=factor))
    states = cluster.image.topics[ORDERS].partitions.values()
    assert all(len({RACKS[node] for node in state.replicas}) == min(3, factor) for state in states)
    assert Counter(state.leader for state in states) == dict.fromkeys(RACKS, 2)
    assert Counter(node for state in states for node in state.replicas) == dict.fromkeys(RACKS, 2 * factor)


def test_placement_stays_even_over_many_topics_and_growth() -> None:
    cluster = Cluster()
    for number in range(7):
        cluster.do(CreateTopic(name=f"topic-{number}", partition_count=1, replication_factor=2))
    cluster.do(CreatePartitions(name=TopicName("topic-0"), total_count=3))
    assert {cluster.image.replica_count(node) for node in cluster.image.brokers} == {6}
    assert {cluster.image.preferred_count(node) for node in cluster.image.brokers} == {3}


def test_a_fenced_broker_never_leads_a_new_partition_and_is_in_no_in_sync_set() -> None:
    cluster = Cluster()
    cluster.fence(100)
    cluster.do(CreateTopic(name="orders", partition_count=6, replication_factor=2))
    assert all(set(state.replicas) == {7, 4001} for state in cluster.image.topics[ORDERS].partitions.values())

    cluster.do(CreateTopic(name="payments", partition_count=3, replication_factor=3))
    for state in cluster.image.topics[TopicName("payments")].partitions.values():
        assert state.replicas[-1] == 100
        assert set(state.isr) == {7, 4001}
        assert state.leader == state.replicas[0]


def test_a_broker_that_shuts_down_gets_no_new_leadership() -> None:
    cluster = Cluster(nodes=(7, 100))
    cluster.shut_down(7)
    cluster.do(CreateTopic(name="orders", partition_count=4, replication_factor=2))
    assert {state.leader for state in cluster.image.topics[ORDERS].partitions.values()} == {100}


def test_too_few_brokers_are_refused() -> None:
    cluster = Cluster(nodes=(7, 100))
    for node, factor in ((100, 3), (7, 1)):
        cluster.fence(node)
        with pytest.raises(KafkaError) as caught:
            cluster.do(CreateTopic(name="orders", partition_count=1, replication_factor=factor))
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def test_an_assignment_by_hand_needs_somebody_who_can_lead() -> None:
    cluster = Cluster()
    cluster.fence(7)
    cluster.create((7, 100))
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    with pytest.raises(KafkaError) as caught:
        cluster.create((7,), name="other")
    assert caught.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_broker_without_a_rack_is_one_like_the_others() -> None:
    cluster = Cluster.with_racks({7: None, 100: None, 4001: None})
    cluster.do(CreateTopic(name="orders", partition_count=3, replication_factor=3))
    assert {cluster.image.leader_count(NodeId(node)) for node in (7, 100, 4001)} == {1}
