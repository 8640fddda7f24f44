"""What a Metadata answer says: brokers, topics, partitions."""

from collections.abc import Mapping

import msgspec

from quorate.client.errors import error_code
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_NODE, LeaderEpoch, NodeId, PartitionIndex, TopicId, TopicName
from quorate.protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


class LiveBroker(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    address: Address
    rack: str | None = None


class PartitionMetadata(msgspec.Struct, frozen=True, kw_only=True):
    index: PartitionIndex
    #: None while the partition has none.
    leader: NodeId | None
    #: -1 where the cluster is too old to tell.
    leader_epoch: LeaderEpoch
    replicas: tuple[NodeId, ...] = ()
    isr: tuple[NodeId, ...] = ()
    offline_replicas: tuple[NodeId, ...] = ()


class TopicMetadata(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    #: The zero id where the cluster is too old to have topic ids.
    topic_id: TopicId
    is_internal: bool = False
    error: ErrorCode = ErrorCode.NONE
    partitions: Mapping[PartitionIndex, PartitionMetadata]


class ClusterMetadata(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str | None
    controller_id: NodeId | None
    brokers: Mapping[NodeId, LiveBroker]
    topics: Mapping[TopicName, TopicMetadata]


def read_metadata(answer: MetadataResponse) -> ClusterMetadata:
    return ClusterMetadata(
        cluster_id=answer.cluster_id,
        controller_id=None if answer.controller_id < 0 else NodeId(answer.controller_id),
        brokers={
            NodeId(broker.node_id): LiveBroker(
                node_id=NodeId(broker.node_id), address=Address(broker.host, broker.port), rack=broker.rack
            )
            for broker in answer.brokers
        },
        topics={TopicName(topic.name): _read_topic(topic) for topic in answer.topics if topic.name is not None},
    )


def _read_topic(topic: MetadataResponseTopic) -> TopicMetadata:
    return TopicMetadata(
        name=TopicName(topic.name or ""),
        topic_id=TopicId(topic.topic_id),
        is_internal=topic.is_internal,
        error=error_code(topic.error_code),
        partitions={PartitionIndex(found.partition_index): _read_partition(found) for found in topic.partitions},
    )


def _read_partition(partition: MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        index=PartitionIndex(partition.partition_index),
        leader=None if partition.leader_id == NO_NODE else NodeId(partition.leader_id),
        leader_epoch=LeaderEpoch(partition.leader_epoch),
        replicas=_node_ids(partition.replica_nodes),
        isr=_node_ids(partition.isr_nodes),
        offline_replicas=_node_ids(partition.offline_replicas),
    )


def _node_ids(ids: object) -> tuple[NodeId, ...]:
    assert isinstance(ids, tuple)
    return ids
