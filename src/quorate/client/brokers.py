"""The brokers that a cluster knows, those that are fenced among them, and taking one off its list."""

import random
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.connection import Connection
from quorate.client.errors import Disconnected
from quorate.client.node_conditions import NodeCondition, ask_conditions
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_NODE, NodeId
from quorate.protocol.errors import ProtocolError
from quorate.protocol.extensions import CautiousUnregisterBrokerRequest
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.unregister_broker import UnregisterBrokerResponse
from quorate.protocol.schema import Request, Response

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
        """All that are registered; clusters that cannot tell of fenced ones name those at work only."""
        return self._cluster.retry("DescribeCluster", self._registered)

    def unregister(self, node_id: NodeId, *, even_with_replicas: bool) -> None:
        """Forget the broker for good; one that is not known is no failure."""
        request = CautiousUnregisterBrokerRequest(broker_id=node_id, only_without_replicas=not even_with_replicas)
        self._unregister(node_id, request)

    def is_empty(self, node_id: NodeId) -> bool:
        """Whether the broker holds no replica, by the word of the controller: any other broker may know less.

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
        """Wait until these brokers list the node no more; returns those that still do. Who is silent lists nobody."""
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
    """The answer of another broker: one that is being removed does not hear any more how that ends."""
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
