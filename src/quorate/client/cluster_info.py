"""Who is in the cluster and which topics it has."""

from collections.abc import Iterable, Mapping

import msgspec

from quorate.client.address import Address
from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import Broker, ClusterMetadata
from quorate.client.errors import UnsupportedApi
from quorate.kernel.ids import NodeId, TopicName
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse


class ClusterDescription(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str | None
    controller_id: NodeId | None
    brokers: Mapping[NodeId, Broker]


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

    def _describe(self) -> ClusterDescription:
        answer = self._cluster.ask_any(DescribeClusterRequest(), DescribeClusterResponse)
        check(answer.error_code, "describe the cluster", answer.error_message)
        return ClusterDescription(
            cluster_id=answer.cluster_id,
            controller_id=NodeId(answer.controller_id) if answer.controller_id >= 0 else None,
            brokers={
                NodeId(broker.broker_id): Broker(
                    node_id=NodeId(broker.broker_id), address=Address(broker.host, broker.port), rack=broker.rack
                )
                for broker in answer.brokers
            },
        )
