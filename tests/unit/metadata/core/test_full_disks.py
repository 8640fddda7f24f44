"""A broker whose disk is full: who leads and who is in sync meanwhile, and when there is room again."""

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import (
    AlterIsr,
    CreateTopic,
    ElectionKind,
    ElectLeaders,
    PartitionName,
    RebalancePartitions,
)
from quorate.metadata.core.elections import preferred_leader_imbalance
from quorate.metadata.core.snapshot import decode_image, encode_image
from tests.unit.metadata.core.cluster import ORDERS, Cluster

FIRST = PartitionName(ORDERS, PartitionIndex(0))


def leader_and_isr(cluster: Cluster, partition: int = 0) -> tuple[int, tuple[int, ...]]:
    state = cluster.state(partition)
    return state.leader, state.isr


def test_a_full_broker_gives_its_leaders_to_replicas_with_room_and_is_waited_for_nowhere() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001), (100, 7, 4001))
    cluster.create((7,), name="alone")

    cluster.change_room(7, has_room=False)

    assert leader_and_isr(cluster, 0) == (100, (100, 4001))
    assert leader_and_isr(cluster, 1) == (100, (100, 4001))
    assert cluster.state(topic="alone").leader == 7  # It can still be read from.
    assert decode_image(encode_image(cluster.image)) == cluster.image


def test_the_last_broker_with_room_leads_and_nobody_gives_up_data_when_all_are_full() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    cluster.change_room(7, has_room=False)
    cluster.change_room(100, has_room=False)

    assert leader_and_isr(cluster) == (100, (100,))
    cluster.change_room(7, has_room=True)
    assert leader_and_isr(cluster) == (100, (100,))  # It has to catch up first.
    assert cluster.alter_isr(cluster.isr_change((7, 100))).error is ErrorCode.NEW_LEADER_ELECTED
    assert leader_and_isr(cluster) == (7, (7,))


def test_brokers_that_are_full_together_stay_in_sync_until_one_has_room() -> None:
    cluster = Cluster()
    cluster.change_room(7, has_room=False)
    cluster.change_room(100, has_room=False)
    cluster.create((7, 100))

    assert leader_and_isr(cluster) == (7, (7, 100))
    cluster.change_room(100, has_room=True)
    assert leader_and_isr(cluster) == (100, (100,))


def test_a_full_broker_does_not_join_an_in_sync_set() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    cluster.change_room(100, has_room=False)

    refused = AlterIsr(node_id=NodeId(7), broker_epoch=cluster.epoch(7), changes=(cluster.isr_change((7, 100)),))

    assert cluster.do(refused).answer.partitions[0].error is ErrorCode.INELIGIBLE_REPLICA
    cluster.change_room(100, has_room=True)
    assert cluster.alter_isr(cluster.isr_change((7, 100))).error is ErrorCode.NONE


def test_leaders_do_not_go_back_to_a_full_broker() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    cluster.alter_isr(cluster.isr_change((7, 100)))
    cluster.change_room(7, has_room=False)

    assert preferred_leader_imbalance(cluster.image) == ()
    outcome = cluster.do(ElectLeaders(kind=ElectionKind.PREFERRED, partitions=(FIRST,))).answer.partitions[0]
    assert outcome.error is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    cluster.change_room(7, has_room=True)
    cluster.alter_isr(cluster.isr_change((7, 100)))
    assert preferred_leader_imbalance(cluster.image) == (FIRST,)


def test_new_partitions_and_moves_avoid_a_full_broker() -> None:
    cluster = Cluster()
    cluster.change_room(7, has_room=False)

    cluster.do(CreateTopic(name=ORDERS, partition_count=6, replication_factor=2))
    cluster.do(RebalancePartitions())

    placed = cluster.image.topics[TopicName(ORDERS)].partitions.values()
    assert all(7 not in state.replicas for state in placed)


def test_a_topic_that_needs_all_brokers_is_led_by_one_with_room() -> None:
    cluster = Cluster()
    cluster.change_room(7, has_room=False)

    cluster.do(CreateTopic(name=ORDERS, partition_count=2, replication_factor=3))

    for partition in range(2):
        leader, isr = leader_and_isr(cluster, partition)
        assert leader != 7
        assert set(isr) == {100, 4001}


def test_a_broker_that_starts_anew_with_a_full_disk_leads_again_what_nobody_else_can() -> None:
    cluster = Cluster()
    cluster.create((7,))
    cluster.register(7, fenced=True, start=2)
    cluster.change_room(7, has_room=False)

    cluster.unfence(7)

    assert leader_and_isr(cluster) == (7, (7,))


def test_a_controller_that_hears_it_twice_decides_once() -> None:
    cluster = Cluster()
    cluster.change_room(7, has_room=False)

    assert cluster.change_room(7, has_room=False).records == ()
