"""A leader that cannot serve what lies on its disk: another replica in sync leads, where there is one."""

from uuid import UUID

import pytest

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionIndex, TopicId
from quorate.metadata.core.commands import LedPartition, ResignLeadership
from tests.unit.metadata.core.cluster import ORDERS, Cluster

SEVEN = NodeId(7)


def resign(cluster: Cluster, *, leader_epoch: int | None = None, topic_id: TopicId | None = None) -> None:
    state = cluster.state()
    led = LedPartition(
        topic_id or cluster.image.topics[ORDERS].topic_id,
        PartitionIndex(0),
        state.leader_epoch if leader_epoch is None else LeaderEpoch(leader_epoch),
    )
    cluster.do(ResignLeadership(node_id=SEVEN, broker_epoch=cluster.epoch(7), partitions=(led,)))


def test_another_replica_in_sync_leads_and_the_one_that_resigned_stays_in_sync() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001))
    before = cluster.state().leader_epoch

    resign(cluster)

    state = cluster.state()
    assert (state.leader, set(state.isr)) == (100, {7, 100, 4001})
    assert state.leader_epoch == before + 1


def test_a_replica_without_room_is_no_successor() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001))
    cluster.change_room(100, has_room=False)

    resign(cluster)

    assert cluster.state().leader == 4001


def test_the_only_replica_goes_on() -> None:
    cluster = Cluster()
    cluster.create((7,))
    before = cluster.state()

    resign(cluster)

    assert cluster.state() == before


def test_what_is_no_longer_so_changes_nothing() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    before = cluster.state()

    resign(cluster, leader_epoch=before.leader_epoch + 1)
    resign(cluster, topic_id=TopicId(UUID(int=99)))
    assert cluster.state() == before

    resign(cluster)
    after = cluster.state()
    resign(cluster, leader_epoch=before.leader_epoch)  # Sent again.
    assert cluster.state() == after


def test_an_earlier_life_of_the_broker_resigns_nothing() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    with pytest.raises(KafkaError):
        cluster.do(ResignLeadership(node_id=SEVEN, broker_epoch=BrokerEpoch(-5), partitions=()))
