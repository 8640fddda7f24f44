"""Who is in the cluster, which topics it has, and how large they are."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from quorate.client.answers import check
from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import Broker, ClusterMetadata
from quorate.client.errors import UnsupportedApi
from quorate.client.leader_calls import by_topic
from quorate.client.routing import Route
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import NodeId, PartitionIndex, TopicName, TopicPartition
from quorate.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from quorate.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


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

    def log_bytes(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The size of each log on its leader's disk, where the leader tells it.

        A guide and no more: who has no leader now, or one that refuses (it takes the right to describe the cluster),
        does not answer or does not know the call, is left out.
        """
        wanted = set(partitions)
        self._cluster.want({partition.topic for partition in wanted})
        by_leader: dict[Broker, list[TopicPartition]] = {}
        for partition in sorted(wanted):
            route = self._cluster.route(partition)
            if isinstance(route, Route):
                by_leader.setdefault(Broker(node_id=route.node_id, address=route.address), []).append(partition)
        found: dict[TopicPartition, int] = {}
        for broker, led in by_leader.items():
            with suppress(QuorateError):
                found |= self._log_bytes_on(broker, led)
        return found

    def _log_bytes_on(self, broker: Broker, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
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
                NodeId(broker.broker_id): Broker(
                    node_id=NodeId(broker.broker_id), address=Address(broker.host, broker.port), rack=broker.rack
                )
                for broker in answer.brokers
            },
        )
