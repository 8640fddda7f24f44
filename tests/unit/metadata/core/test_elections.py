"""Who leads after brokers come and go."""

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_NODE, NodeId, PartitionIndex, PartitionLeader, QuorumLeader, Term, TopicName
from quorate.metadata.core.commands import (
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
    CreateTopic,
    ElectionKind,
    ElectLeaders,
    PartitionName,
)
from quorate.metadata.core.elections import preferred_leader_imbalance
from quorate.metadata.core.records import PartitionChanged
from tests.unit.metadata.core.cluster import ORDERS, Cluster

FIRST = PartitionName(ORDERS, PartitionIndex(0))


def test_a_lost_leader_is_replaced_by_the_next_replica_in_sync_in_one_batch() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001), (100, 7, 4001), (7, 4001, 100))
    before = [cluster.state(index) for index in range(3)]

    cluster.fence(7)

    after = [cluster.state(index) for index in range(3)]
    assert [state.leader for state in after] == [100, 100, 4001]
    assert [state.isr for state in after] == [(100, 4001), (100, 4001), (4001, 100)]
    assert [new.leader_epoch - old.leader_epoch for old, new in zip(before, after, strict=True)] == [1, 0, 1]
    assert [new.partition_epoch - old.partition_epoch for old, new in zip(before, after, strict=True)] == [1, 1, 1]
    assert cluster.delta.changed_leaders == (cluster.name(0), cluster.name(2))
    assert cluster.delta.changed_brokers == (7,)
    assert cluster.image.partition_leader(ORDERS, PartitionIndex(0)) == PartitionLeader(
        NodeId(100), after[0].leader_epoch
    )


def test_a_replica_that_is_not_in_sync_never_leads() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001))
    cluster.alter_isr(cluster.isr_change((7, 4001)))
    cluster.fence(7)
    assert cluster.state().leader == 4001


def test_the_last_in_sync_member_is_kept_and_leads_again_when_it_is_back() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    cluster.fence(7)
    cluster.fence(100)
    lost = cluster.state()
    assert (lost.leader, lost.isr) == (NO_NODE, (100,))
    assert cluster.image.partition_leader(ORDERS, PartitionIndex(0)) is None
    assert cluster.image.offline_replicas(lost) == (7, 100)

    cluster.unfence(7)
    assert cluster.state() == lost

    cluster.unfence(100)
    assert (cluster.state().leader, cluster.state().leader_epoch) == (100, lost.leader_epoch + 1)


def test_an_unclean_election_happens_only_where_the_topic_allows_it() -> None:
    cluster = Cluster()
    cluster.create((7, 100), name="careful")
    cluster.create((7, 100), name="careless", unclean_leader_election_enable="true")
    cluster.fence(100)
    cluster.fence(7)

    cluster.unfence(100)

    assert cluster.state(topic="careful").leader == NO_NODE
    assert (cluster.state(topic="careless").leader, cluster.state(topic="careless").isr) == (100, (100,))
    assert cluster.delta.unclean_elections == (cluster.name(topic="careless"),)


def test_a_topic_that_comes_to_allow_unclean_elections_has_one_where_it_waits_for_a_leader() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 4001))
    cluster.alter_isr(cluster.isr_change((7,)))
    cluster.fence(7)
    assert cluster.state().leader == NO_NODE
    change = ConfigChange(key="unclean.leader.election.enable", operation=ConfigOperation.SET, value="true")
    cluster.do(AlterTopicConfigs(name=ORDERS, changes=(change,)))
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    assert cluster.delta.unclean_elections == (cluster.name(),)


def test_a_loss_leads_to_an_unclean_election_only_when_no_in_sync_replica_lives() -> None:
    cluster = Cluster()
    cluster.create((7, 100, 4001), unclean_leader_election_enable="true")
    cluster.alter_isr(cluster.isr_change((7, 4001)))
    cluster.fence(7)
    assert (cluster.state().leader, cluster.delta.unclean_elections) == (4001, ())
    decision = cluster.fence(4001)
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    assert [record.unclean for record in decision.records if isinstance(record, PartitionChanged)] == [True]


def test_a_restarted_broker_is_lost_first() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 7))
    cluster.create((7,), name="alone")

    cluster.register(7, fenced=True, start=2)

    assert [(cluster.state(i).leader, cluster.state(i).isr) for i in range(2)] == [(100, (100,))] * 2
    assert (cluster.state(topic="alone").leader, cluster.state(topic="alone").isr) == (NO_NODE, (7,))
    cluster.unfence(7)
    assert (cluster.state().leader, cluster.state(topic="alone").leader) == (100, 7)


def test_a_restart_of_the_last_in_sync_replica_is_waited_for_even_where_unclean_elections_are_allowed() -> None:
    cluster = Cluster()
    cluster.create((7, 100), unclean_leader_election_enable="true")
    cluster.alter_isr(cluster.isr_change((7,)))

    cluster.register(7, fenced=True, start=2)
    assert (cluster.state().leader, cluster.state().isr) == (NO_NODE, (7,))

    cluster.fence(7)
    assert (cluster.state().leader, cluster.delta.unclean_elections) == (100, (cluster.name(),))


def test_a_cluster_of_one_that_restarts_leads_again_in_one_step_with_one_new_epoch() -> None:
    cluster = Cluster(nodes=(7,))
    cluster.create((7,))
    decision = cluster.register(7, start=2)
    assert (cluster.state().leader, cluster.state().leader_epoch, cluster.state().partition_epoch) == (7, 1, 1)
    assert len(decision.records) == 2


def test_fencing_costs_what_the_broker_holds() -> None:
    cluster = Cluster(nodes=(7, 100, 4001, 5))
    cluster.create((7, 100))
    cluster.create(*[(100, 4001)] * 5, name="others")
    assert len(cluster.fence(7).records) == 2
    assert len(cluster.fence(5).records) == 1


def test_a_preferred_election_brings_the_first_replica_back() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 7))
    cluster.fence(7)
    cluster.unfence(7)
    assert preferred_leader_imbalance(cluster.image) == ()
    assert _elect(cluster, ElectionKind.PREFERRED, FIRST) == [ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE]

    cluster.alter_isr(cluster.isr_change((100, 7)))
    assert preferred_leader_imbalance(cluster.image) == (FIRST,)
    epoch = cluster.state().leader_epoch
    assert _elect(cluster, ElectionKind.PREFERRED, FIRST) == [ErrorCode.NONE]
    assert (cluster.state().leader, cluster.state().leader_epoch) == (7, epoch + 1)
    assert _elect(cluster, ElectionKind.PREFERRED, FIRST) == [ErrorCode.ELECTION_NOT_NEEDED]


def test_a_preferred_leader_that_is_down_is_no_imbalance() -> None:
    cluster = Cluster()
    cluster.create((7,))
    cluster.fence(7)
    assert preferred_leader_imbalance(cluster.image) == ()


def test_an_election_of_all_reports_only_those_that_needed_one() -> None:
    cluster = Cluster()
    cluster.create((7, 100), (100, 7), (7, 4001))
    cluster.fence(7)
    cluster.unfence(7)
    cluster.alter_isr(cluster.isr_change((100, 7)))
    outcomes = cluster.do(ElectLeaders(kind=ElectionKind.PREFERRED, partitions=None)).answer.partitions
    assert [(outcome.partition, outcome.error) for outcome in outcomes] == [
        (0, ErrorCode.NONE),
        (2, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
    ]


def test_an_unclean_election_on_demand_takes_any_replica_that_lives() -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    cluster.fence(100)
    assert _elect(cluster, ElectionKind.UNCLEAN, FIRST) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.fence(7)
    assert _elect(cluster, ElectionKind.UNCLEAN, FIRST) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.unfence(100)
    assert cluster.state().leader == NO_NODE
    assert _elect(cluster, ElectionKind.UNCLEAN, FIRST) == [ErrorCode.NONE]
    assert (cluster.state().leader, cluster.state().isr) == (100, (100,))
    assert cluster.delta.unclean_elections == (cluster.name(),)


@pytest.mark.parametrize("kind", ElectionKind)
def test_an_election_for_what_nobody_knows_is_refused(kind: ElectionKind) -> None:
    cluster = Cluster()
    cluster.create((7, 100))
    unknown = [PartitionName(ORDERS, PartitionIndex(1)), PartitionName(TopicName("other"), PartitionIndex(0))]
    assert _elect(cluster, kind, *unknown) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2


def test_the_quorum_leader_is_preferred_as_leader_where_the_policy_says_so_and_it_is_a_replica() -> None:
    cluster = Cluster()
    cluster.favour_quorum_leader(100)
    cluster.create((7, 100), (7, 4001), (4001, 100))
    assert [cluster.state(index).leader for index in range(3)] == [100, 7, 100]

    cluster.favour_quorum_leader(7)
    cluster.fence(100)
    assert [cluster.state(index).leader for index in range(3)] == [7, 7, 4001]
    assert preferred_leader_imbalance(cluster.image, cluster.quorum_leader) == ()


def test_the_quorum_leader_means_nothing_to_partitions_under_the_default_policy() -> None:
    cluster = Cluster()
    cluster.quorum_leader = QuorumLeader(NodeId(100), Term(3))
    cluster.do(CreateTopic(name="orders", partition_count=3, replication_factor=3))
    assert {state.leader for state in cluster.image.topics[ORDERS].partitions.values()} == {7, 100, 4001}


def _elect(cluster: Cluster, kind: ElectionKind, *partitions: PartitionName) -> list[ErrorCode]:
    return [outcome.error for outcome in cluster.do(ElectLeaders(kind=kind, partitions=partitions)).answer.partitions]
