"""Who leads each partition, and where that broker listens. Time arrives in events, effects are returned.

A leader's address is looked up by node id in the newest broker list that the cluster itself gave, never in the list of
bootstrap servers. An answer with an older leader epoch never replaces a newer one, one partition's change touches no
other, and a changed topic id starts the topic's epochs anew (the topic was deleted and created again).

A refresh is due at the interval, and at once when an answer or a lost connection shows that the picture is old; two
refreshes are never closer than the backoff, so that a cluster in trouble is not flooded.
"""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Final, Protocol, assert_never

import msgspec

from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker, PartitionMetadata, TopicMetadata
from quorate.client.retries import Backoff
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_TOPIC_ID,
    LeaderEpoch,
    NodeId,
    PartitionIndex,
    TopicId,
    TopicName,
    TopicPartition,
)

#: Answers that say "this is not the leader, or not in that epoch".
STALE_LEADER_CODES: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: How long a preferred read replica is used before the leader is asked again; Kafka's clients use their metadata age.
READ_REPLICA_LEASE_MS: Final = 300_000


class MetadataArrived(msgspec.Struct, frozen=True):
    now_ms: int
    metadata: ClusterMetadata


class MetadataFailed(msgspec.Struct, frozen=True):
    now_ms: int


class TopicsWanted(msgspec.Struct, frozen=True):
    """Somebody is about to use these topics: from now on refreshes include them."""

    now_ms: int
    topics: frozenset[TopicName]


class LeaderHinted(msgspec.Struct, frozen=True):
    """An answer named the leader and, perhaps, where it listens (KIP-951)."""

    now_ms: int
    partition: TopicPartition
    leader: NodeId
    leader_epoch: LeaderEpoch
    endpoints: tuple[LiveBroker, ...] = ()


class PartitionRefused(msgspec.Struct, frozen=True):
    """The broker that was asked answered with an error for the partition."""

    now_ms: int
    partition: TopicPartition
    code: ErrorCode


class PictureOutdated(msgspec.Struct, frozen=True):
    """An answer about no single partition, such as NOT_CONTROLLER, shows that the cluster has changed."""

    now_ms: int


class BrokerLost(msgspec.Struct, frozen=True):
    now_ms: int
    node_id: NodeId


class ReadReplicaPreferred(msgspec.Struct, frozen=True):
    """The leader named a replica to fetch from (KIP-392)."""

    now_ms: int
    partition: TopicPartition
    node_id: NodeId


class ReadReplicaFailed(msgspec.Struct, frozen=True):
    partition: TopicPartition


RoutingEvent = (
    MetadataArrived
    | MetadataFailed
    | TopicsWanted
    | LeaderHinted
    | PartitionRefused
    | PictureOutdated
    | BrokerLost
    | ReadReplicaPreferred
    | ReadReplicaFailed
)


class LeaderFollowed(msgspec.Struct, frozen=True):
    """The partition's leadership moved to another broker."""

    partition: TopicPartition
    previous: NodeId
    leader: NodeId
    leader_epoch: LeaderEpoch


class AddressForgotten(msgspec.Struct, frozen=True):
    """No broker listens there any more: connections to it can go."""

    address: Address


RoutingEffect = LeaderFollowed | AddressForgotten


class Route(msgspec.Struct, frozen=True):
    partition: TopicPartition
    topic_id: TopicId
    node_id: NodeId
    address: Address
    leader_epoch: LeaderEpoch
    is_leader: bool = True


class Unroutable(msgspec.Struct, frozen=True):
    """Why there is no address to send to; ``code`` is what a broker would have answered."""

    partition: TopicPartition
    code: ErrorCode
    reason: str


class _Leadership(msgspec.Struct, frozen=True):
    leader: NodeId | None
    leader_epoch: LeaderEpoch
    # The last broker that led, kept while there is none: what a new leader is compared with.
    last_leader: NodeId | None


class _Topic:
    def __init__(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id
        self.error = ErrorCode.NONE
        self.partitions: dict[PartitionIndex, _Leadership] = {}


class PartitionLeaderRouter:
    def __init__(self, *, refresh_interval_ms: int, refresh_backoff: Backoff, random: Random) -> None:
        self._refresh_interval_ms = refresh_interval_ms
        self._refresh_backoff = refresh_backoff
        self._random = random
        self._brokers: dict[NodeId, LiveBroker] = {}
        self._controller_id: NodeId | None = None
        self._cluster_id: str | None = None
        self._topics: dict[TopicName, _Topic] = {}
        self._wanted: set[TopicName] = set()
        self._read_replicas: dict[TopicPartition, tuple[NodeId, int]] = {}
        # None: nothing is known yet, so a refresh is due whatever the time.
        self._refreshed_ms: int | None = None
        self._refresh_due_ms: int | None = None
        self._failed_refreshes = 0
        self.leaders_followed = 0

    def step(self, event: RoutingEvent) -> list[RoutingEffect]:
        match event:
            case MetadataArrived(now_ms, metadata):
                return self._take_metadata(now_ms, metadata)
            case MetadataFailed(now_ms):
                self._failed_refreshes += 1
                self._refreshed_ms = now_ms
                self._refresh_due_ms = self._earliest_refresh_ms()
            case TopicsWanted(now_ms, topics):
                if not topics <= self._topics.keys() | self._wanted:
                    self._refresh_due_ms = now_ms
                self._wanted |= topics
            case LeaderHinted():
                return self._take_hint(event)
            case PartitionRefused(now_ms, partition, code):
                self._read_replicas.pop(partition, None)
                if code in STALE_LEADER_CODES:
                    self._refresh_soon(now_ms)
            case PictureOutdated(now_ms):
                self._refresh_soon(now_ms)
            case BrokerLost(now_ms, node_id):
                self._read_replicas = {
                    partition: lease for partition, lease in self._read_replicas.items() if lease[0] != node_id
                }
                self._refresh_soon(now_ms)
            case ReadReplicaPreferred(now_ms, partition, node_id):
                self._read_replicas[partition] = (node_id, now_ms + READ_REPLICA_LEASE_MS)
            case ReadReplicaFailed(partition):
                self._read_replicas.pop(partition, None)
            case _:
                assert_never(event)
        return []

    def route(self, partition: TopicPartition) -> Route | Unroutable:
        """Where the partition's leader listens."""
        topic = self._topics.get(partition.topic)
        if topic is None:
            return Unroutable(partition, ErrorCode.LEADER_NOT_AVAILABLE, "nothing is known of the topic yet")
        if topic.error is not ErrorCode.NONE:
            return Unroutable(partition, topic.error, f"the cluster answers {topic.error.name} for the topic")
        leadership = topic.partitions.get(partition.partition)
        if leadership is None:
            return Unroutable(
                partition,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"the topic has {len(topic.partitions)} partitions, and not this one",
            )
        if leadership.leader is None:
            return Unroutable(partition, ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader")
        broker = self._brokers.get(leadership.leader)
        if broker is None:
            reason = f"its leader {leadership.leader} is not among the live brokers"
            return Unroutable(partition, ErrorCode.LEADER_NOT_AVAILABLE, reason)
        return Route(partition, topic.topic_id, broker.node_id, broker.address, leadership.leader_epoch)

    def read_route(self, partition: TopicPartition, now_ms: int) -> Route | Unroutable:
        """Where to fetch from: the replica that the leader named while its lease lasts, otherwise the leader."""
        route = self.route(partition)
        node_id, until_ms = self._read_replicas.get(partition, (None, 0))
        broker = self._brokers.get(node_id) if node_id is not None else None
        if isinstance(route, Unroutable) or broker is None or now_ms >= until_ms or broker.node_id == route.node_id:
            return route
        return msgspec.structs.replace(route, node_id=broker.node_id, address=broker.address, is_leader=False)

    def refresh_is_due(self, now_ms: int) -> bool:
        return self._refresh_due_ms is None or now_ms >= self._refresh_due_ms

    @property
    def wanted_topics(self) -> frozenset[TopicName]:
        return frozenset(self._wanted)

    @property
    def brokers(self) -> Mapping[NodeId, LiveBroker]:
        return self._brokers

    @property
    def controller_id(self) -> NodeId | None:
        return self._controller_id

    @property
    def cluster_id(self) -> str | None:
        return self._cluster_id

    def topic_id(self, topic: TopicName) -> TopicId:
        known = self._topics.get(topic)
        return NO_TOPIC_ID if known is None else known.topic_id

    def _take_metadata(self, now_ms: int, metadata: ClusterMetadata) -> list[RoutingEffect]:
        if self._wanted <= metadata.topics.keys():  # Otherwise it was asked for something else than a refresh.
            self._failed_refreshes = 0
            self._refreshed_ms = now_ms
            self._refresh_due_ms = now_ms + self._refresh_interval_ms
        self._controller_id = metadata.controller_id
        self._cluster_id = metadata.cluster_id
        effects = self._take_brokers(metadata.brokers)
        for topic in metadata.topics.values():
            effects += self._take_topic(topic)
        return effects

    def _take_brokers(self, brokers: Mapping[NodeId, LiveBroker]) -> list[RoutingEffect]:
        if not brokers:
            return []  # A broker that is just starting knows no other: nothing can be learned from it.
        gone = {broker.address for broker in self._brokers.values()} - {broker.address for broker in brokers.values()}
        self._brokers = dict(brokers)
        return [AddressForgotten(address) for address in sorted(gone, key=str)]

    def _take_topic(self, found: TopicMetadata) -> list[RoutingEffect]:
        topic = self._topics.get(found.name)
        if topic is None or _is_another_topic(topic.topic_id, found.topic_id):
            topic = self._topics[found.name] = _Topic(found.topic_id)
        if found.topic_id != NO_TOPIC_ID:
            topic.topic_id = found.topic_id
        topic.error = found.error
        effects: list[RoutingEffect] = []
        for partition in found.partitions.values():
            effects += self._take_partition(TopicPartition(found.name, partition.index), topic, partition)
        return effects

    def _take_partition(self, name: TopicPartition, topic: _Topic, found: PartitionMetadata) -> Iterable[RoutingEffect]:
        known = topic.partitions.get(name.partition)
        if known is not None and NO_LEADER_EPOCH != found.leader_epoch < known.leader_epoch:
            return []
        return self._set_leader(name, topic, found.leader, found.leader_epoch)

    def _set_leader(
        self, name: TopicPartition, topic: _Topic, leader: NodeId | None, leader_epoch: LeaderEpoch
    ) -> list[RoutingEffect]:
        known = topic.partitions.get(name.partition)
        previous = known.last_leader if known is not None else None
        topic.partitions[name.partition] = _Leadership(leader, leader_epoch, previous if leader is None else leader)
        if leader is None or previous is None or leader == previous:
            return []
        self.leaders_followed += 1
        self._read_replicas.pop(name, None)
        return [LeaderFollowed(name, previous, leader, leader_epoch)]

    def _take_hint(self, hint: LeaderHinted) -> list[RoutingEffect]:
        topic = self._topics.get(hint.partition.topic)
        endpoints = {endpoint.node_id: endpoint for endpoint in hint.endpoints}
        known = topic.partitions.get(hint.partition.partition) if topic is not None else None
        is_newer = known is not None and hint.leader_epoch > known.leader_epoch
        if topic is None or not is_newer or not (hint.leader in endpoints or hint.leader in self._brokers):
            self._refresh_soon(hint.now_ms)
            return []
        self._brokers.update(endpoints)
        return self._set_leader(hint.partition, topic, hint.leader, hint.leader_epoch)

    def _refresh_soon(self, now_ms: int) -> None:
        """At once, but never sooner than the backoff after the last refresh."""
        if self._refreshed_ms is None or self._refresh_due_ms is None:
            return
        self._refresh_due_ms = min(self._refresh_due_ms, max(now_ms, self._earliest_refresh_ms()))

    def _earliest_refresh_ms(self) -> int:
        assert self._refreshed_ms is not None
        return self._refreshed_ms + self._refresh_backoff.delay_ms(max(1, self._failed_refreshes), self._random)


def _is_another_topic(known: TopicId, found: TopicId) -> bool:
    return NO_TOPIC_ID not in (known, found) and known != found


class CurrentLeader(Protocol):
    @property
    def leader_id(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...


class Endpoint(Protocol):
    @property
    def node_id(self) -> int: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def rack(self) -> str | None: ...


def refusal_event(
    now_ms: int, partition: TopicPartition, code: ErrorCode, leader: CurrentLeader, endpoints: Sequence[Endpoint]
) -> LeaderHinted | PartitionRefused:
    """What a refused partition tells the router: who leads instead (KIP-951), or only that it was refused."""
    if leader.leader_id < 0:
        return PartitionRefused(now_ms, partition, code)
    brokers = tuple(
        LiveBroker(node_id=NodeId(node.node_id), address=Address(node.host, node.port), rack=node.rack)
        for node in endpoints
    )
    return LeaderHinted(now_ms, partition, NodeId(leader.leader_id), LeaderEpoch(leader.leader_epoch), brokers)
