"""A running cluster's metadata as the pure planners want it: an image made of what its nodes answer."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from quorate.kernel.ids import NO_NODE, BrokerEpoch, Offset, TopicName
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.records import AnyRecord, BrokerRegistered, PartitionChanged, TopicCreated

if TYPE_CHECKING:
    from quorate.client.admin.brokers import BrokerList
    from quorate.client.admin.topics import OngoingReassignment
    from quorate.client.cluster_metadata import TopicMetadata
    from quorate.client.kafka_client import KafkaClient
    from quorate.kernel.ids import TopicPartition

#: A cluster in which something begins or ends to move all the time is described as it is.
_LOOKS = 5


def describe_image(client: "KafkaClient") -> MetadataImage:
    """What the cluster looks like now. Configs and epochs of brokers are not part of it."""
    ongoing = client.reassignments.ongoing()
    for _ in range(_LOOKS):
        topics = client.cluster.metadata().topics
        before, ongoing = ongoing, client.reassignments.ongoing()
        if before == ongoing:
            break  # What the topics tell of replicas is of the same moment.
    return image_of(client.brokers.registered(), topics, ongoing)


def image_of(
    brokers: "BrokerList",
    topics: "Mapping[TopicName, TopicMetadata]",
    ongoing: "Mapping[TopicPartition, OngoingReassignment]",
) -> MetadataImage:
    image, _ = MetadataImage().replay(_records(brokers, topics, ongoing), Offset(1))
    return image


def _records(
    brokers: "BrokerList",
    topics: "Mapping[TopicName, TopicMetadata]",
    ongoing: "Mapping[TopicPartition, OngoingReassignment]",
) -> Iterator[AnyRecord]:
    from quorate.kernel.ids import TopicPartition

    for number, broker in enumerate(brokers.brokers.values(), start=1):
        yield BrokerRegistered(
            node_id=broker.node_id,
            broker_epoch=BrokerEpoch(number),
            host=broker.address.host,
            port=broker.address.port,
            rack=broker.rack,
            fenced=broker.is_fenced,
        )
    for topic in topics.values():
        yield TopicCreated(name=topic.name, topic_id=topic.topic_id)
        for partition in topic.partitions.values():
            moving = ongoing.get(TopicPartition(topic.name, partition.index))
            yield PartitionChanged(
                topic_id=topic.topic_id,
                partition=partition.index,
                replicas=partition.replicas,
                isr=partition.isr,
                leader=NO_NODE if partition.leader is None else partition.leader,
                leader_epoch=partition.leader_epoch,
                adding_replicas=() if moving is None else moving.adding,
                removing_replicas=() if moving is None else moving.removing,
            )
