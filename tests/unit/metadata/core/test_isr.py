"""In-sync sets that leaders propose: what is granted, and by which epoch the rest is refused."""

import msgspec
import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionIndex, TopicId
from quorate.metadata.core.commands import AlterIsr, IsrMember
from tests.unit.metadata.core.cluster import Cluster


def three_replicas() -> Cluster:
    cluster = Cluster()
    cluster.create((7, 100, 4001))
    return cluster


def test_the_leader_shrinks_and_expands_the_in_sync_set() -> None:
    cluster = three_replicas()
    before = cluster.state()

    outcome = cluster.alter_isr(cluster.isr_change((7, 100)))

    assert (outcome.error, outcome.state) == (ErrorCode.NONE, cluster.state())
    assert cluster.state().isr == (7, 100)
    assert (cluster.state().leader_epoch, cluster.state().partition_epoch) == (
        before.leader_epoch,
        before.partition_epoch + 1,
    )
    assert cluster.delta.changed_leaders == ()
    cluster.alter_isr(cluster.isr_change((7, 100, 4001)))
    assert cluster.state().isr == (7, 100, 4001)


def test_each_partition_of_a_batch_has_its_own_outcome() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 7), (7, 4001))
    changes = (cluster.isr_change((7,), 0), cluster.isr_change((100,), 1), cluster.isr_change((7,), 2))
    outcomes = cluster.do(AlterIsr(node_id=NodeId(7), broker_epoch=cluster.epoch(7), changes=changes)).answer.partitions
    assert [outcome.error for outcome in outcomes] == [
        ErrorCode.NONE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NONE,
    ]
    assert [cluster.state(index).isr for index in range(3)] == [(7,), (100, 7), (7,)]


def test_a_proposal_made_on_an_older_state_is_refused_even_within_one_batch() -> None:
    cluster = three_replicas()
    first, second = cluster.isr_change((7, 100)), cluster.isr_change((7, 4001))
    command = AlterIsr(node_id=NodeId(7), broker_epoch=cluster.epoch(7), changes=(first, second))

    outcomes = cluster.do(command).answer.partitions
    assert [outcome.error for outcome in outcomes] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert outcomes[1].state == cluster.state()

    assert [o.error for o in cluster.do(command).answer.partitions] == [ErrorCode.INVALID_UPDATE_VERSION] * 2
    assert cluster.state().isr == (7, 100)


def test_a_deposed_leader_is_refused_by_epoch() -> None:
    cluster = three_replicas()
    proposal = cluster.isr_change((7,))
    cluster.fence(7)
    cluster.unfence(7)
    assert cluster.alter_isr(proposal, leader=7).error is ErrorCode.FENCED_LEADER_EPOCH


def test_a_restarted_leader_cannot_speak_for_its_earlier_self() -> None:
    cluster = three_replicas()
    command = AlterIsr(node_id=NodeId(7), broker_epoch=cluster.epoch(7), changes=(cluster.isr_change((7,)),))
    cluster.register(7, start=2)
    refusal = cluster.refusal(command)
    assert refusal is not None
    assert refusal.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_restarted_follower_cannot_rejoin_through_an_old_request() -> None:
    cluster = three_replicas()
    cluster.alter_isr(cluster.isr_change((7, 100)))
    proposal = cluster.isr_change((7, 100, 4001))
    cluster.register(4001, start=2)
    assert cluster.alter_isr(proposal).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.alter_isr(cluster.isr_change((7, 100, 4001))).error is ErrorCode.NONE


def test_fenced_and_stopping_brokers_cannot_join() -> None:
    cluster = three_replicas()
    cluster.fence(100)
    cluster.shut_down(4001)
    assert cluster.alter_isr(cluster.isr_change((7, 100))).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.alter_isr(cluster.isr_change((7, 4001))).error is ErrorCode.INELIGIBLE_REPLICA
    assert cluster.state().isr == (7,)


@pytest.mark.parametrize("isr", [(), (100, 4001), (7, 5), (7, 7)])
def test_an_in_sync_set_holds_the_leader_and_replicas_only(isr: tuple[int, ...]) -> None:
    cluster = Cluster(nodes=(7, 100, 4001, 5))
    cluster.create((7, 100, 4001))
    assert cluster.alter_isr(cluster.isr_change(isr)).error is ErrorCode.INVALID_REQUEST
    assert cluster.state().isr == (7, 100, 4001)


def test_a_controller_that_is_behind_its_asker_does_not_decide() -> None:
    cluster = three_replicas()
    proposal = cluster.isr_change((7,))
    later = msgspec.structs.replace(proposal, leader_epoch=LeaderEpoch(proposal.leader_epoch + 1))
    assert cluster.alter_isr(later).error is ErrorCode.NOT_CONTROLLER
    later = msgspec.structs.replace(proposal, partition_epoch=proposal.partition_epoch + 1)
    assert cluster.alter_isr(later).error is ErrorCode.NOT_CONTROLLER


def test_unknown_partitions_are_refused() -> None:
    cluster = three_replicas()
    proposal = cluster.isr_change((7,))
    changes = (
        msgspec.structs.replace(proposal, topic_id=TopicId(cluster.new_uuid())),
        msgspec.structs.replace(proposal, partition=PartitionIndex(1)),
    )
    command = AlterIsr(node_id=NodeId(7), broker_epoch=cluster.epoch(7), changes=changes)
    assert [outcome.error for outcome in cluster.do(command).answer.partitions] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_member_without_its_broker_epoch_is_not_taken() -> None:
    cluster = three_replicas()
    proposal = cluster.isr_change((7, 100))
    members = (proposal.new_isr[0], IsrMember(node_id=NodeId(100), broker_epoch=BrokerEpoch(-1)))
    refused = msgspec.structs.replace(proposal, new_isr=members)
    assert cluster.alter_isr(refused).error is ErrorCode.INELIGIBLE_REPLICA
