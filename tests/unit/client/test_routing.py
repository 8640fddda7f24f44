"""The routing machine: what each event changes, and that it changes nothing else."""

from random import Random
from uuid import UUID

import pytest

from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, PartitionMetadata, TopicMetadata
from quorate.client.retries import Backoff
from quorate.client.routing import (
    READ_REPLICA_LEASE_MS,
    STALE_LEADER_CODES,
    AddressForgotten,
    BrokerLost,
    LeaderFollowed,
    LeaderHinted,
    MetadataArrived,
    MetadataFailed,
    PartitionLeaderRouter,
    PartitionRefused,
    PictureOutdated,
    ReadReplicaFailed,
    ReadReplicaPreferred,
    Route,
    TopicsWanted,
    Unroutable,
)
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_TOPIC_ID, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName, TopicPartition

ORDERS = TopicName("orders")
ORDERS_0 = TopicPartition(ORDERS, PartitionIndex(0))
ORDERS_1 = TopicPartition(ORDERS, PartitionIndex(1))
ORDERS_ID = TopicId(UUID(int=1))
INTERVAL_MS = 30_000
BACKOFF = Backoff(initial_ms=100, max_ms=1_000)
#: The longest that a first delay can be.
BACKOFF_MS = 120
START_MS = 5_000
#: Neither contiguous nor zero-based, and in no order.
ADDRESSES = {4001: Address("c", 9092), 7: Address("a", 9092), 100: Address("b", 9093)}


def broker(node_id: int, address: Address | None = None) -> LiveBroker:
    return LiveBroker(node_id=NodeId(node_id), address=address or ADDRESSES[node_id])


def metadata(
    leaders: dict[int, tuple[int | None, int]],
    *,
    brokers: tuple[int, ...] = (4001, 7, 100),
    topic_id: TopicId = ORDERS_ID,
    error: ErrorCode = ErrorCode.NONE,
) -> ClusterMetadata:
    """``leaders``: partition -> (leader, epoch)."""
    partitions = {
        PartitionIndex(index): PartitionMetadata(
            index=PartitionIndex(index),
            leader=None if leader is None else NodeId(leader),
            leader_epoch=LeaderEpoch(epoch),
        )
        for index, (leader, epoch) in leaders.items()
    }
    topic = TopicMetadata(name=ORDERS, topic_id=topic_id, error=error, partitions=partitions)
    return ClusterMetadata(
        cluster_id="cluster",
        controller_id=NodeId(7),
        brokers={NodeId(node_id): broker(node_id) for node_id in brokers},
        topics={ORDERS: topic},
    )


def new_router() -> PartitionLeaderRouter:
    return PartitionLeaderRouter(refresh_interval_ms=INTERVAL_MS, refresh_backoff=BACKOFF, random=Random(1))


@pytest.fixture
def router() -> PartitionLeaderRouter:
    """Knows two partitions: 0 led by 7 in epoch 5, 1 led by 4001 in epoch 8."""
    router = new_router()
    router.step(TopicsWanted(START_MS, frozenset({ORDERS})))
    router.step(MetadataArrived(START_MS, metadata({0: (7, 5), 1: (4001, 8)})))
    return router


def leader_of(router: PartitionLeaderRouter, partition: TopicPartition) -> tuple[int, str, int]:
    route = router.route(partition)
    assert isinstance(route, Route), route
    return route.node_id, str(route.address), route.leader_epoch


def test_the_address_comes_from_the_broker_list_by_node_id(router: PartitionLeaderRouter) -> None:
    """Broker address looked up as bootstrap[leader_id]."""
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)
    assert leader_of(router, ORDERS_1) == (4001, "c:9092", 8)


def test_nothing_known_is_no_route_and_a_refresh_is_due() -> None:
    router = new_router()
    assert isinstance(router.route(ORDERS_0), Unroutable)
    assert router.refresh_is_due(0)


def test_refresh_is_due_at_the_interval(router: PartitionLeaderRouter) -> None:
    assert not router.refresh_is_due(START_MS + INTERVAL_MS - 1)
    assert router.refresh_is_due(START_MS + INTERVAL_MS)


def test_a_failed_refresh_is_tried_again_after_the_backoff(router: PartitionLeaderRouter) -> None:
    failed_ms = START_MS + INTERVAL_MS
    router.step(MetadataFailed(failed_ms))
    assert not router.refresh_is_due(failed_ms + 79)
    assert router.refresh_is_due(failed_ms + BACKOFF_MS)
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)


def test_refreshes_that_keep_failing_come_less_and_less_often(router: PartitionLeaderRouter) -> None:
    for _ in range(10):
        router.step(MetadataFailed(START_MS))
    router.step(BrokerLost(START_MS, NodeId(7)))
    assert not router.refresh_is_due(START_MS + 799)
    assert router.refresh_is_due(START_MS + 1_200)
    router.step(MetadataArrived(START_MS, metadata({0: (7, 5)})))
    router.step(BrokerLost(START_MS, NodeId(7)))
    assert router.refresh_is_due(START_MS + BACKOFF_MS)


@pytest.mark.parametrize(
    "event",
    [
        *(PartitionRefused(START_MS + 1_000, ORDERS_0, code) for code in sorted(STALE_LEADER_CODES)),
        BrokerLost(START_MS + 1_000, NodeId(7)),
        PictureOutdated(START_MS + 1_000),
        TopicsWanted(START_MS + 1_000, frozenset({TopicName("payments")})),
    ],
    ids=lambda event: f"{type(event).__name__}-{getattr(getattr(event, 'code', None), 'name', '')}",
)
def test_refresh_is_due_at_once(
    router: PartitionLeaderRouter, event: PartitionRefused | BrokerLost | PictureOutdated | TopicsWanted
) -> None:
    assert not router.refresh_is_due(event.now_ms)
    router.step(event)
    assert router.refresh_is_due(event.now_ms)


def test_the_codes_that_call_for_a_refresh_are_there() -> None:
    assert {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
    } <= STALE_LEADER_CODES


def test_an_error_that_says_nothing_of_the_leader_calls_for_no_refresh(router: PartitionLeaderRouter) -> None:
    router.step(PartitionRefused(START_MS + 1_000, ORDERS_0, ErrorCode.MESSAGE_TOO_LARGE))
    assert not router.refresh_is_due(START_MS + 1_000)


def test_refreshes_are_never_closer_than_the_backoff(router: PartitionLeaderRouter) -> None:
    router.step(PartitionRefused(START_MS + 1, ORDERS_0, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert not router.refresh_is_due(START_MS + 79)
    assert router.refresh_is_due(START_MS + BACKOFF_MS)


def test_topics_that_are_wanted_already_call_for_no_refresh(router: PartitionLeaderRouter) -> None:
    router.step(TopicsWanted(START_MS + 1_000, frozenset({ORDERS})))
    assert not router.refresh_is_due(START_MS + 1_000)


def test_an_answer_about_other_topics_does_not_put_off_the_refresh(router: PartitionLeaderRouter) -> None:
    router.step(BrokerLost(START_MS + 1_000, NodeId(7)))
    others = ClusterMetadata(cluster_id=None, controller_id=None, brokers={NodeId(7): broker(7)}, topics={})
    router.step(MetadataArrived(START_MS + 1_001, others))
    assert router.refresh_is_due(START_MS + 1_001)


def test_a_newer_epoch_moves_one_partition_and_no_other(router: PartitionLeaderRouter) -> None:
    effects = router.step(MetadataArrived(START_MS + 1, metadata({0: (100, 6), 1: (4001, 8)})))
    assert effects == [LeaderFollowed(ORDERS_0, NodeId(7), NodeId(100), LeaderEpoch(6))]
    assert leader_of(router, ORDERS_0) == (100, "b:9093", 6)
    assert leader_of(router, ORDERS_1) == (4001, "c:9092", 8)
    assert router.leaders_followed == 1


def test_an_older_epoch_changes_nothing(router: PartitionLeaderRouter) -> None:
    assert router.step(MetadataArrived(START_MS + 1, metadata({0: (100, 4), 1: (100, 7)}))) == []
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)
    assert leader_of(router, ORDERS_1) == (4001, "c:9092", 8)


def test_a_cluster_without_epochs_is_believed(router: PartitionLeaderRouter) -> None:
    router.step(MetadataArrived(START_MS + 1, metadata({0: (100, -1)})))
    assert leader_of(router, ORDERS_0) == (100, "b:9093", -1)


def test_epochs_start_anew_with_another_topic_of_the_same_name(router: PartitionLeaderRouter) -> None:
    recreated = metadata({0: (100, 0)}, topic_id=TopicId(UUID(int=2)))
    router.step(MetadataArrived(START_MS + 1, recreated))
    assert leader_of(router, ORDERS_0) == (100, "b:9093", 0)
    assert isinstance(router.route(ORDERS_1), Unroutable)
    assert router.topic_id(ORDERS) == UUID(int=2)


def test_a_topic_id_that_was_not_told_before_is_learned(router: PartitionLeaderRouter) -> None:
    older = new_router()
    older.step(MetadataArrived(START_MS, metadata({0: (7, 5)}, topic_id=NO_TOPIC_ID)))
    older.step(MetadataArrived(START_MS + 1, metadata({0: (7, 5)})))
    assert older.topic_id(ORDERS) == ORDERS_ID
    router.step(MetadataArrived(START_MS + 1, metadata({0: (7, 5)}, topic_id=NO_TOPIC_ID)))
    assert router.topic_id(ORDERS) == ORDERS_ID


def test_a_partition_without_a_leader_is_no_route_and_then_the_new_leader_counts(router: PartitionLeaderRouter) -> None:
    router.step(MetadataArrived(START_MS + 1, metadata({0: (None, 6)})))
    found = router.route(ORDERS_0)
    assert isinstance(found, Unroutable)
    assert found.code is ErrorCode.LEADER_NOT_AVAILABLE
    assert router.leaders_followed == 0
    assert router.step(MetadataArrived(START_MS + 2, metadata({0: (100, 7)}))) == [
        LeaderFollowed(ORDERS_0, NodeId(7), NodeId(100), LeaderEpoch(7))
    ]


def test_the_same_leader_elected_again_was_not_followed(router: PartitionLeaderRouter) -> None:
    router.step(MetadataArrived(START_MS + 1, metadata({0: (None, 6)})))
    assert router.step(MetadataArrived(START_MS + 2, metadata({0: (7, 7)}))) == []
    assert router.leaders_followed == 0


def test_a_leader_that_is_not_among_the_brokers_is_no_route(router: PartitionLeaderRouter) -> None:
    effects = router.step(MetadataArrived(START_MS + 1, metadata({0: (7, 5)}, brokers=(100, 4001))))
    assert effects == [AddressForgotten(ADDRESSES[7])]
    found = router.route(ORDERS_0)
    assert isinstance(found, Unroutable)
    assert "7" in found.reason


def test_a_broker_that_moved_is_found_at_its_new_address(router: PartitionLeaderRouter) -> None:
    moved = metadata({0: (7, 5)})
    moved.brokers[NodeId(7)] = broker(7, Address("new", 1))  # type: ignore[index]
    assert router.step(MetadataArrived(START_MS + 1, moved)) == [AddressForgotten(ADDRESSES[7])]
    assert leader_of(router, ORDERS_0) == (7, "new:1", 5)


def test_an_answer_without_brokers_does_not_empty_the_list(router: PartitionLeaderRouter) -> None:
    router.step(MetadataArrived(START_MS + 1, metadata({}, brokers=())))
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_a_topic_that_the_cluster_refuses_is_no_route_with_its_code(
    router: PartitionLeaderRouter, code: ErrorCode
) -> None:
    router.step(MetadataArrived(START_MS + 1, metadata({}, error=code)))
    found = router.route(ORDERS_0)
    assert isinstance(found, Unroutable)
    assert found.code is code


def test_a_partition_that_the_topic_does_not_have_is_no_route(router: PartitionLeaderRouter) -> None:
    found = router.route(TopicPartition(ORDERS, PartitionIndex(2)))
    assert isinstance(found, Unroutable)
    assert found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def hint(leader: int, epoch: int, *endpoints: LiveBroker) -> LeaderHinted:
    return LeaderHinted(START_MS + 1_000, ORDERS_0, NodeId(leader), LeaderEpoch(epoch), endpoints)


def test_a_hint_is_followed_without_a_refresh(router: PartitionLeaderRouter) -> None:
    assert router.step(hint(100, 6)) == [LeaderFollowed(ORDERS_0, NodeId(7), NodeId(100), LeaderEpoch(6))]
    assert leader_of(router, ORDERS_0) == (100, "b:9093", 6)
    assert leader_of(router, ORDERS_1) == (4001, "c:9092", 8)
    assert not router.refresh_is_due(START_MS + 1_000)


def test_a_hint_brings_the_address_of_a_broker_that_is_new(router: PartitionLeaderRouter) -> None:
    router.step(hint(55, 6, broker(55, Address("d", 4))))
    assert leader_of(router, ORDERS_0) == (55, "d:4", 6)


@pytest.mark.parametrize(("leader", "epoch"), [(100, 5), (100, 4), (55, 6)], ids=["same", "older", "no address"])
def test_a_hint_that_is_of_no_use_calls_for_a_refresh(router: PartitionLeaderRouter, leader: int, epoch: int) -> None:
    assert router.step(hint(leader, epoch)) == []
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)
    assert router.refresh_is_due(START_MS + 1_000)


def test_metadata_from_before_the_hint_does_not_undo_it(router: PartitionLeaderRouter) -> None:
    router.step(hint(100, 6))
    router.step(MetadataArrived(START_MS + 2_000, metadata({0: (7, 5), 1: (4001, 8)})))
    assert leader_of(router, ORDERS_0) == (100, "b:9093", 6)


def read_from(router: PartitionLeaderRouter, now_ms: int) -> tuple[int, bool]:
    route = router.read_route(ORDERS_0, now_ms)
    assert isinstance(route, Route)
    return route.node_id, route.is_leader


def test_the_nearest_replica_is_read_while_its_lease_lasts(router: PartitionLeaderRouter) -> None:
    router.step(ReadReplicaPreferred(START_MS, ORDERS_0, NodeId(100)))
    assert read_from(router, START_MS + READ_REPLICA_LEASE_MS - 1) == (100, False)
    assert read_from(router, START_MS + READ_REPLICA_LEASE_MS) == (7, True)
    assert leader_of(router, ORDERS_0) == (7, "a:9092", 5)


@pytest.mark.parametrize(
    "event",
    [
        ReadReplicaFailed(ORDERS_0),
        BrokerLost(START_MS + 1, NodeId(100)),
        PartitionRefused(START_MS + 1, ORDERS_0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        MetadataArrived(START_MS + 1, metadata({0: (7, 5)}, brokers=(7, 4001))),
    ],
    ids=lambda event: type(event).__name__,
)
def test_reading_falls_back_to_the_leader(
    router: PartitionLeaderRouter, event: ReadReplicaFailed | BrokerLost | PartitionRefused | MetadataArrived
) -> None:
    router.step(ReadReplicaPreferred(START_MS, ORDERS_0, NodeId(100)))
    router.step(event)
    assert read_from(router, START_MS + 1) == (7, True)


def test_a_lost_broker_leaves_the_replicas_of_others_alone(router: PartitionLeaderRouter) -> None:
    """One leader change clears every connection."""
    router.step(ReadReplicaPreferred(START_MS, ORDERS_0, NodeId(100)))
    router.step(BrokerLost(START_MS + 1, NodeId(4001)))
    assert read_from(router, START_MS + 1) == (100, False)
