"""Partitions on their way to other replicas: begun, completed, overridden and cancelled."""

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    CreatePartitions,
    PartitionName,
    PartitionReassignment,
)
from quorate.metadata.core.decisions import PartitionOutcome
from quorate.metadata.core.image import PartitionState
from quorate.metadata.core.replica_changes import list_reassignments
from tests.unit.metadata.core.cluster import ORDERS, Cluster


def six_nodes() -> Cluster:
    cluster = Cluster(nodes=(1, 2, 3, 4, 5, 6))
    cluster.create((1, 2, 3))
    return cluster


def reassign(cluster: Cluster, replicas: tuple[int, ...] | None, *, resize: bool = True) -> PartitionOutcome:
    target = None if replicas is None else tuple(map(NodeId, replicas))
    wanted = PartitionReassignment(topic=ORDERS, partition=PartitionIndex(0), replicas=target)
    command = AlterPartitionReassignments(reassignments=(wanted,), allow_replication_factor_change=resize)
    (outcome,) = cluster.do(command).answer.partitions
    return outcome


def membership(state: PartitionState) -> tuple[tuple[int, ...], ...]:
    return state.replicas, state.adding_replicas, state.removing_replicas, state.isr


def test_replicas_are_the_union_until_every_target_is_in_sync() -> None:
    cluster = six_nodes()

    assert reassign(cluster, (4, 5, 1)).error is ErrorCode.NONE
    assert membership(cluster.state()) == ((4, 5, 1, 2, 3), (4, 5), (2, 3), (1, 2, 3))
    assert (cluster.state().leader, cluster.state().leader_epoch) == (1, 0)
    assert list_reassignments(cluster.image) == ((cluster.name(), cluster.state()),)

    cluster.alter_isr(cluster.isr_change((1, 2, 3, 4)))
    assert cluster.state().is_reassigning

    outcome = cluster.alter_isr(cluster.isr_change((1, 2, 3, 4, 5)))
    assert outcome.error is ErrorCode.NONE
    assert membership(cluster.state()) == ((4, 5, 1), (), (), (1, 4, 5))
    assert (cluster.state().leader, cluster.state().leader_epoch) == (1, 1)
    assert list_reassignments(cluster.image) == ()
    assert cluster.image.replica_count(NodeId(2)) == 0


def test_a_leader_that_goes_hands_over_when_the_reassignment_completes() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 5, 6))
    outcome = cluster.alter_isr(cluster.isr_change((1, 4, 5, 6)))
    assert outcome.error is ErrorCode.NEW_LEADER_ELECTED
    assert (cluster.state().leader, cluster.state().leader_epoch) == (4, 1)
    assert membership(cluster.state()) == ((4, 5, 6), (), (), (4, 5, 6))


def test_a_cancelled_reassignment_leaves_the_replicas_that_were_there() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 5, 6))
    cluster.alter_isr(cluster.isr_change((1, 2, 3, 4)))
    assert reassign(cluster, None).error is ErrorCode.NONE
    assert membership(cluster.state()) == ((1, 2, 3), (), (), (1, 2, 3))
    assert reassign(cluster, None).error is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancellation_elects_where_an_added_replica_leads() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 5, 6))
    cluster.alter_isr(cluster.isr_change((1, 2, 4)))
    cluster.fence(1)
    assert cluster.state().leader == 4  # The target's order comes first.
    reassign(cluster, None)
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_a_cancellation_that_would_lose_data_is_refused() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 5, 6))
    cluster.alter_isr(cluster.isr_change((1, 4)))
    cluster.fence(1)
    assert (cluster.state().leader, cluster.state().isr) == (4, (4,))
    assert reassign(cluster, None).error is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert cluster.state().leader == 4


def test_a_new_target_takes_the_place_of_the_one_under_way() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 2, 3))
    cluster.alter_isr(cluster.isr_change((1, 2, 3)))
    reassign(cluster, (5, 2, 3))
    assert membership(cluster.state()) == ((5, 2, 3, 1), (5,), (1,), (1, 2, 3))
    assert cluster.image.replica_count(NodeId(4)) == 0


def test_fewer_replicas_and_another_order_take_effect_at_once() -> None:
    cluster = six_nodes()
    reassign(cluster, (2, 1))
    assert membership(cluster.state()) == ((2, 1), (), (), (1, 2))
    assert cluster.state().leader == 1
    reassign(cluster, (1, 2))
    assert membership(cluster.state()) == ((1, 2), (), (), (1, 2))


def test_a_replica_is_not_given_up_while_a_target_is_out_of_sync() -> None:
    cluster = six_nodes()
    cluster.fence(2)
    reassign(cluster, (1, 2))
    assert membership(cluster.state()) == ((1, 2, 3), (), (3,), (1, 3))
    cluster.unfence(2)
    cluster.alter_isr(cluster.isr_change((1, 2, 3)))
    assert membership(cluster.state()) == ((1, 2), (), (), (1, 2))


@pytest.mark.parametrize("left", [(1, 2), (1, 3)])
def test_a_replica_that_goes_ends_the_reign_so_that_nothing_it_said_counts_when_it_is_back(
    left: tuple[int, ...],
) -> None:
    cluster = six_nodes()
    reassign(cluster, left)
    assert (cluster.state().leader, cluster.state().leader_epoch) == (1, 1)
    reassign(cluster, (1, 2, 3))
    assert (cluster.state().leader, cluster.state().leader_epoch) == (1, 1)


def test_two_edits_of_a_partition_in_one_command_are_one_change() -> None:
    cluster = six_nodes()
    first = PartitionReassignment(topic=ORDERS, partition=PartitionIndex(0), replicas=(NodeId(2), NodeId(3)))
    second = PartitionReassignment(topic=ORDERS, partition=PartitionIndex(0), replicas=(NodeId(3), NodeId(2)))
    decision = cluster.do(AlterPartitionReassignments(reassignments=(first, second)))
    assert len(decision.records) == 1
    assert (cluster.state().replicas, cluster.state().leader) == ((3, 2), 2)
    assert (cluster.state().leader_epoch, cluster.state().partition_epoch) == (1, 1)


def test_partitions_added_during_a_reassignment_get_the_replication_factor_that_is_asked_for() -> None:
    cluster = six_nodes()
    reassign(cluster, (4, 5, 6))
    cluster.do(CreatePartitions(name=ORDERS, total_count=2))
    assert len(cluster.state(1).replicas) == 3


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((4, 4), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((4, 99), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((4, 5), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_a_target_that_cannot_be_is_refused(target: tuple[int, ...], code: ErrorCode) -> None:
    cluster = six_nodes()
    before = cluster.state()
    assert reassign(cluster, target, resize=False).error is code
    assert cluster.state() is before


def test_unknown_partitions_are_refused_and_not_listed() -> None:
    cluster = six_nodes()
    names = [PartitionName(ORDERS, PartitionIndex(9)), PartitionName(TopicName("other"), PartitionIndex(0))]
    command = AlterPartitionReassignments(
        reassignments=tuple(
            PartitionReassignment(topic=name.topic, partition=name.partition, replicas=None) for name in names
        )
    )
    outcomes = cluster.do(command).answer.partitions
    assert [outcome.error for outcome in outcomes] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert list_reassignments(cluster.image, names) == ()
