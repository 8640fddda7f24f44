"""Random conversations with the routing machine, compared with a model that keeps only what must be true."""

from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, PartitionMetadata, TopicMetadata
from quorate.client.retries import Backoff
from quorate.client.routing import (
    BrokerLost,
    LeaderHinted,
    MetadataArrived,
    MetadataFailed,
    PartitionLeaderRouter,
    PartitionRefused,
    ReadReplicaPreferred,
    Route,
    RoutingEvent,
    TopicsWanted,
)
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName, TopicPartition

TOPIC = TopicName("t")
PARTITIONS = [TopicPartition(TOPIC, PartitionIndex(index)) for index in range(3)]
INTERVAL_MS = 30_000

node_ids = st.sampled_from([7, 100, 4001]).map(NodeId)
epochs = st.integers(0, 6).map(LeaderEpoch)
times = st.integers(0, 100_000)
addresses = st.builds(Address, st.sampled_from(["a", "b", "c", "d"]), st.just(9092))
brokers = st.dictionaries(node_ids, addresses, max_size=3)


@st.composite
def arrivals(draw: st.DrawFn) -> MetadataArrived:
    found = draw(brokers)
    leaders = draw(
        st.dictionaries(
            st.sampled_from(PARTITIONS).map(lambda name: name.partition), st.tuples(st.none() | node_ids, epochs)
        )
    )
    topic = TopicMetadata(
        name=TOPIC,
        topic_id=TopicId(UUID(int=1)),
        partitions={
            index: PartitionMetadata(index=index, leader=leader, leader_epoch=epoch)
            for index, (leader, epoch) in leaders.items()
        },
    )
    return MetadataArrived(
        draw(times),
        ClusterMetadata(
            cluster_id=None,
            controller_id=None,
            brokers={node_id: LiveBroker(node_id=node_id, address=address) for node_id, address in found.items()},
            topics={TOPIC: topic},
        ),
    )


@st.composite
def hints(draw: st.DrawFn) -> LeaderHinted:
    endpoints = tuple(LiveBroker(node_id=node_id, address=address) for node_id, address in draw(brokers).items())
    return LeaderHinted(draw(times), draw(st.sampled_from(PARTITIONS)), draw(node_ids), draw(epochs), endpoints)


refusals = st.builds(PartitionRefused, times, st.sampled_from(PARTITIONS), st.sampled_from(list(ErrorCode)))
events: st.SearchStrategy[RoutingEvent] = st.one_of(
    arrivals(),
    hints(),
    refusals,
    st.builds(BrokerLost, times, node_ids),
    st.builds(MetadataFailed, times),
    st.builds(TopicsWanted, times, st.just(frozenset({TOPIC}))),
    st.builds(ReadReplicaPreferred, times, st.sampled_from(PARTITIONS), node_ids),
)


def new_router() -> PartitionLeaderRouter:
    return PartitionLeaderRouter(
        refresh_interval_ms=INTERVAL_MS, refresh_backoff=Backoff(initial_ms=100, max_ms=1_000), random=Random(1)
    )


class Model:
    """The newest broker list with later endpoints on top, and the highest epoch of each partition with its leader."""

    def __init__(self) -> None:
        self.brokers: dict[NodeId, Address] = {}
        self.leaders: dict[TopicPartition, tuple[LeaderEpoch, NodeId | None]] = {}

    def take(self, event: RoutingEvent) -> None:
        match event:
            case MetadataArrived(_, metadata):
                if metadata.brokers:
                    self.brokers = {node_id: broker.address for node_id, broker in metadata.brokers.items()}
                for partition in metadata.topics[TOPIC].partitions.values():
                    name = TopicPartition(TOPIC, partition.index)
                    known = self.leaders.get(name)
                    if known is None or partition.leader_epoch >= known[0]:
                        self.leaders[name] = (partition.leader_epoch, partition.leader)
            case LeaderHinted(_, name, leader, epoch, endpoints):
                named = {endpoint.node_id: endpoint.address for endpoint in endpoints}
                known = self.leaders.get(name)
                if known is not None and epoch > known[0] and leader in {**self.brokers, **named}:
                    self.brokers |= named
                    self.leaders[name] = (epoch, leader)
            case _:
                pass


@given(st.lists(events, max_size=30))
def test_a_route_is_the_newest_leader_at_its_newest_address(conversation: list[RoutingEvent]) -> None:
    router, model = new_router(), Model()
    for event in conversation:
        router.step(event)
        model.take(event)
        for name in PARTITIONS:
            epoch, leader = model.leaders.get(name, (LeaderEpoch(-1), None))
            route = router.route(name)
            if leader is None or leader not in model.brokers:
                assert not isinstance(route, Route)
            else:
                assert isinstance(route, Route)
                assert (route.node_id, route.leader_epoch) == (leader, epoch)
                assert route.address == model.brokers[leader]


@given(st.lists(events, max_size=30))
def test_what_is_read_from_is_always_a_live_broker(conversation: list[RoutingEvent]) -> None:
    router, model = new_router(), Model()
    for event in conversation:
        router.step(event)
        model.take(event)
        for name in PARTITIONS:
            route = router.read_route(name, now_ms=50_000)
            assert not isinstance(route, Route) or model.brokers[route.node_id] == route.address


@given(st.lists(events, max_size=15), st.sampled_from(PARTITIONS), st.one_of(hints(), refusals))
def test_what_is_said_of_one_partition_leaves_the_others(
    conversation: list[RoutingEvent], name: TopicPartition, event: LeaderHinted | PartitionRefused
) -> None:
    router = new_router()
    for earlier in conversation:
        router.step(earlier)
    others = [other for other in PARTITIONS if other != event.partition]

    def seen(other: TopicPartition) -> tuple[object, object]:
        route = router.route(other)
        # A hint may bring a broker's new address; who leads, and in which epoch, stays.
        return (route.node_id, route.leader_epoch) if isinstance(route, Route) else (None, None)

    before = {other: seen(other) for other in others}
    router.step(event)
    after = {other: seen(other) for other in others}
    assert {other: after[other] for other in others if before[other] != (None, None)} == {
        other: route for other, route in before.items() if route != (None, None)
    }


@given(st.lists(events, max_size=30))
def test_a_refresh_is_never_further_away_than_the_interval(conversation: list[RoutingEvent]) -> None:
    router = new_router()
    now_ms = 0
    for event in conversation:
        router.step(event)
        now_ms = max(now_ms, getattr(event, "now_ms", 0))
        assert router.refresh_is_due(now_ms + INTERVAL_MS)
