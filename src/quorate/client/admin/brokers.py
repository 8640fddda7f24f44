"""Who is in the cluster, fenced brokers among them, and what brokers report about themselves and their logs.

A broker that is there no more is taken off the cluster's list.
"""

import random
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import ClusterMetadata, LiveBroker
from quorate.client.connections.connection import Connection
from quorate.client.errors import Disconnected, UnsupportedApi, check
from quorate.client.leader_calls import by_topic
from quorate.client.routing import Route
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import NO_NODE, NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.errors import ProtocolError
from quorate.protocol.extensions import CautiousUnregisterBrokerRequest, ReportingDescribeLogDirsResponse
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from quorate.protocol.messages.unregister_broker import UnregisterBrokerResponse
from quorate.protocol.schema import Request, Response


class ClusterDescription(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str | None
    controller_id: NodeId | None
    brokers: Mapping[NodeId, LiveBroker]


class ClusterInfo:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Brokers and topics, all of them or those named. A topic that does not exist has its ``error`` set."""
        names = None if topics is None else [TopicName(topic) for topic in topics]
        return self._cluster.retry("Metadata", lambda: self._cluster.metadata(names))

    def describe(self) -> ClusterDescription:
        try:
            return self._cluster.retry("DescribeCluster", self._describe)
        except UnsupportedApi:  # Before Kafka 2.8 the same is said by Metadata.
            metadata = self.metadata([])
            return ClusterDescription(
                cluster_id=metadata.cluster_id, controller_id=metadata.controller_id, brokers=metadata.brokers
            )

    def log_bytes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The size of each log on its leader's disk, where the leader tells it.

        A guide and no more: who has no leader now, or one that refuses (it takes the right to describe the cluster),
        does not answer or does not know the call, is left out.
        """
        wanted = set(partitions)
        self._cluster.want({partition.topic for partition in wanted})
        by_leader: dict[LiveBroker, list[TopicPartition]] = {}
        for partition in sorted(wanted):
            route = self._cluster.route(partition)
            if isinstance(route, Route):
                by_leader.setdefault(LiveBroker(node_id=route.node_id, address=route.address), []).append(partition)
        found: dict[TopicPartition, int] = {}
        for broker, led in by_leader.items():
            with suppress(QuorateError):
                found |= self._log_bytes_on(broker, led)
        return found

    def _log_bytes_on(self, broker: LiveBroker, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=indexes) for topic, indexes in by_topic(partitions).items()
        ]
        answer = self._cluster.ask_node(broker, DescribeLogDirsRequest(topics=topics), DescribeLogDirsResponse)
        check(answer.error_code, f"describe the log folders of broker {broker.node_id}", None)
        return {
            TopicPartition(TopicName(topic.name), PartitionIndex(each.partition_index)): each.partition_size
            for folder in answer.results
            if folder.error_code == ErrorCode.NONE
            for topic in folder.topics
            for each in topic.partitions
            if not each.is_future_key  # A second copy, on its way to another folder.
        }

    def _describe(self) -> ClusterDescription:
        answer = self._cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        check(answer.error_code, "describe the cluster", answer.error_message)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=NodeId(answer.controller_id) if answer.controller_id >= 0 else None,
            brokers={
                NodeId(broker.broker_id): LiveBroker(
                    node_id=NodeId(broker.broker_id), address=Address(broker.host, broker.port), rack=broker.rack
                )
                for broker in answer.brokers
            },
        )


class NodeCondition(msgspec.Struct, frozen=True, kw_only=True):
    """What a node reports about itself."""

    node_id: NodeId
    kind: str
    subject: str
    is_problem: bool
    sentence: str


def ask_conditions(connection: Connection, node_id: NodeId) -> list[NodeCondition]:
    """None where the node does not know the call, as Apache Kafka's do not, or the caller may not make it."""
    try:
        version = connection.versions.choose(DescribeLogDirsRequest)
    except UnsupportedApi:
        return []
    # No topics: the folders alone.
    answer = connection.ask(DescribeLogDirsRequest(topics=()), ReportingDescribeLogDirsResponse, version)
    if answer.error_code != ErrorCode.NONE:
        return []
    return [
        NodeCondition(
            node_id=node_id,
            kind=each.kind,
            subject=each.subject,
            is_problem=each.is_problem,
            sentence=each.sentence,
        )
        for each in answer.conditions
    ]


R = TypeVar("R", bound=Response)


class RegisteredBroker(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    address: Address
    rack: str | None
    #: Known, but not at work: down, or just starting.
    is_fenced: bool


class BrokerList(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    brokers: Mapping[NodeId, RegisteredBroker]


class Brokers:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def registered(self) -> BrokerList:
        """All registered brokers; a cluster that cannot report fenced ones names only those at work."""
        return self._cluster.retry("DescribeCluster", self._registered)

    def unregister(self, node_id: NodeId, *, even_with_replicas: bool) -> None:
        """Forget the broker for good; one that is not known is no failure."""
        request = CautiousUnregisterBrokerRequest(broker_id=node_id, only_without_replicas=not even_with_replicas)
        self._unregister(node_id, request)

    def is_empty(self, node_id: NodeId) -> bool:
        """Whether the broker holds no replica, as the controller knows it: any other broker may know less.

        Apache Kafka's does not understand the question, and never denies it.
        """
        request = CautiousUnregisterBrokerRequest(
            broker_id=NO_NODE, only_without_replicas=True, validated_broker_id=node_id
        )
        try:
            self._unregister(node_id, request)
        except KafkaError as error:
            if error.code is not ErrorCode.INVALID_REQUEST:
                raise
            return False
        return True

    def _unregister(self, node_id: NodeId, request: CautiousUnregisterBrokerRequest) -> None:
        def attempt() -> None:
            answer = ask_other_than(self._cluster, node_id, request, UnregisterBrokerResponse)
            if answer.error_code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                check(answer.error_code, f"unregister broker {node_id}", answer.error_message)

        self._cluster.retry("UnregisterBroker", attempt)

    def wait_until_forgotten(self, node_id: NodeId, by: Iterable[RegisteredBroker], timeout_ms: int) -> list[NodeId]:
        """Wait until none of these brokers lists the node; returns those that still do. A silent one lists none."""
        listing = [broker for broker in by if not broker.is_fenced]
        deadline_ms = self._cluster.clock.now_ms() + timeout_ms
        while listing := [broker for broker in listing if self._is_listed(node_id, broker.address)]:
            if self._cluster.clock.now_ms() >= deadline_ms:
                break
            self._cluster.clock.sleep_ms(_LOOK_INTERVAL_MS)
        return [broker.node_id for broker in listing]

    def conditions(self, brokers: Iterable[RegisteredBroker]) -> list[NodeCondition]:
        """What these brokers report about themselves, those at work; one that does not answer has a problem."""
        return [condition for broker in brokers if not broker.is_fenced for condition in self._conditions_of(broker)]

    def _conditions_of(self, broker: RegisteredBroker) -> list[NodeCondition]:
        try:
            return ask_conditions(self._cluster.connection_to(broker.address), broker.node_id)
        except Disconnected as error:
            return [
                NodeCondition(
                    node_id=broker.node_id, kind="unreachable", subject="", is_problem=True, sentence=str(error)
                )
            ]

    def _is_listed(self, node_id: NodeId, address: Address) -> bool:
        try:
            answer = _describe_with_fenced(self._cluster.connection_to(address))
        except (Disconnected, ProtocolError):
            return False
        return any(broker.broker_id == node_id for broker in answer.brokers)

    def _registered(self) -> BrokerList:
        answer = self._cluster.first_answer("DescribeCluster", _describe_with_fenced)
        check(answer.error_code, "describe the cluster", answer.error_message)
        return BrokerList(
            cluster_id=answer.cluster_id,
            brokers={
                NodeId(broker.broker_id): RegisteredBroker(
                    node_id=NodeId(broker.broker_id),
                    address=Address(broker.host, broker.port),
                    rack=broker.rack,
                    is_fenced=broker.is_fenced,
                )
                for broker in answer.brokers
            },
        )


def ask_other_than(cluster: Cluster, node_id: NodeId, request: Request, response_type: type[R]) -> R:
    """Ask another broker than this one: a broker that is being removed no longer learns how its removal ends."""
    others = [broker for broker in cluster.brokers().values() if broker.node_id != node_id]
    if not others:
        return cluster.ask_any(request, response_type)
    return cluster.ask_node(random.choice(others), request, response_type)


_LOOK_INTERVAL_MS = 20
#: The first version that can name fenced brokers.
_FENCED_BROKERS_VERSION = 2


def _describe_with_fenced(connection: Connection) -> DescribeClusterResponse:
    version = connection.versions.choose(DescribeClusterRequest)
    request = DescribeClusterRequest(include_fenced_brokers=version >= _FENCED_BROKERS_VERSION)
    return connection.ask(request, DescribeClusterResponse, version)
