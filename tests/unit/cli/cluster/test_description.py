"""When a cluster counts as healthy, and what is said where it does not."""

from uuid import UUID

import msgspec
import pytest

from quorate.cli.cluster.description import ClusterHealth, image_of, judge
from quorate.client.admin.brokers import BrokerList, NodeCondition, RegisteredBroker
from quorate.client.admin.quorum import QuorumDescription, QuorumMember
from quorate.client.admin.topics import OngoingReassignment
from quorate.client.cluster_metadata import PartitionMetadata, TopicMetadata
from quorate.kernel.address import Address
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, Term, TopicId, TopicName, TopicPartition

SEVEN, HUNDRED, LAST = NodeId(7), NodeId(100), NodeId(4001)
ALL = (SEVEN, HUNDRED, LAST)
ORDERS = TopicName("orders")
FIRST = PartitionIndex(0)


def broker(node_id: NodeId, *, is_fenced: bool = False) -> RegisteredBroker:
    return RegisteredBroker(node_id=node_id, address=Address("host", 9092), rack=None, is_fenced=is_fenced)


def brokers(*, fenced: tuple[NodeId, ...] = ()) -> BrokerList:
    return BrokerList(cluster_id="c", brokers={node: broker(node, is_fenced=node in fenced) for node in ALL})


def member(node_id: NodeId, *, end: int = 10, is_voter: bool = True) -> QuorumMember:
    return QuorumMember(
        node_id=node_id, is_voter=is_voter, log_end_offset=Offset(end), last_fetch_ms=1, last_caught_up_ms=1
    )


QUORUM = QuorumDescription(
    leader=SEVEN,
    term=Term(3),
    high_watermark=Offset(10),
    members={SEVEN: member(SEVEN), HUNDRED: member(HUNDRED, end=8), LAST: member(LAST, is_voter=False)},
    addresses={SEVEN: Address("host", 19092)},
)
HEALTHY = PartitionMetadata(index=FIRST, leader=SEVEN, leader_epoch=LeaderEpoch(1), replicas=ALL, isr=ALL)


def health_of(
    partition: PartitionMetadata = HEALTHY,
    *,
    fenced: tuple[NodeId, ...] = (),
    quorum: QuorumDescription | None = QUORUM,
    min_isr: int = 2,
    moving: OngoingReassignment | None = None,
    conditions: tuple[NodeCondition, ...] = (),
) -> ClusterHealth:
    known = brokers(fenced=fenced)
    topic = TopicMetadata(name=ORDERS, topic_id=TopicId(UUID(int=1)), partitions={FIRST: partition})
    ongoing = {} if moving is None else {TopicPartition(ORDERS, FIRST): moving}
    image = image_of(known, {ORDERS: topic}, ongoing)
    return judge(known, image, {ORDERS: min_isr}, quorum, conditions)


def test_cluster_with_a_leader_and_all_in_sync_is_healthy() -> None:
    health = health_of()

    assert health.healthy
    assert [(node.node_id, node.state, node.quorum_role, node.metadata_lag) for node in health.nodes] == [
        (7, "live", "leader", 0),
        (100, "live", "voter", 2),
        (4001, "live", "learner", 0),
    ]
    assert [(node.leaders, node.replicas) for node in health.nodes] == [(1, 1), (0, 1), (0, 1)]
    assert health.quorum is not None
    assert health.quorum.max_voter_lag == 2


@pytest.mark.parametrize(
    ("partition", "problem"),
    [
        (msgspec.structs.replace(HEALTHY, leader=None), "without a leader"),
        (msgspec.structs.replace(HEALTHY, isr=(SEVEN, LAST)), "1 partition with replicas out of sync"),
        (msgspec.structs.replace(HEALTHY, isr=(SEVEN,)), "fewer replicas in sync"),
    ],
)
def test_partition_in_trouble_makes_it_unhealthy(partition: PartitionMetadata, problem: str) -> None:
    health = health_of(partition)

    assert not health.healthy
    assert any(problem in each for each in health.problems)


def test_fenced_node_and_lost_quorum_make_it_unhealthy() -> None:
    assert health_of(fenced=(LAST,)).problems == ("node 4001 is fenced",)
    assert not health_of(quorum=None).healthy


def test_member_of_the_quorum_that_is_no_broker_is_shown() -> None:
    stranger = NodeId(9)
    quorum = msgspec.structs.replace(QUORUM, members={**QUORUM.members, stranger: member(stranger)})

    health = health_of(quorum=quorum)

    assert health.problems == ("node 9 is unregistered",)


def test_replica_that_is_being_added_is_not_missed_yet() -> None:
    partition = msgspec.structs.replace(HEALTHY, isr=(SEVEN, HUNDRED))

    health = health_of(partition, moving=OngoingReassignment(replicas=ALL, adding=(LAST,), removing=()))

    assert health.healthy
    assert [each.adding for each in health.reassigning] == [(LAST,)]


def test_topic_with_one_replica_is_not_below_min_insync_replicas_of_two() -> None:
    """Its leader takes acks=all: a topic with fewer replicas needs them all."""
    health = health_of(msgspec.structs.replace(HEALTHY, replicas=(SEVEN,), isr=(SEVEN,)), min_isr=2)

    assert health.healthy
    assert health.under_min_isr == ()


def test_problem_that_a_node_reports_makes_it_unhealthy_and_information_does_not() -> None:
    full = NodeCondition(node_id=LAST, kind="disk-full", subject="/data", is_problem=True, sentence="no room")
    scrub = NodeCondition(node_id=LAST, kind="scrub", subject="", is_problem=False, sentence="43 % checked")

    assert health_of(conditions=(full, scrub)).problems == ("node 4001: no room",)
    healthy = health_of(conditions=(scrub,))
    assert healthy.healthy
    assert [node.information for node in healthy.nodes] == [(), (), ("43 % checked",)]
