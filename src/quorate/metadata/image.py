"""The metadata image: what every reader of cluster metadata sees. Pure.

An image never changes. ``MetadataImage.replay`` makes the next one from committed records, sharing whatever they did
not touch, and says in a ``Delta`` what is new. All look-ups are local reads; none waits for consensus.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import assert_never

import msgspec

from quorate.kernel.ids import (
    NO_NODE,
    BrokerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
)
from quorate.metadata import records as r


class Broker(msgspec.Struct, frozen=True, kw_only=True):
    node_id: NodeId
    broker_epoch: BrokerEpoch
    host: str
    port: int
    rack: str | None = None


class PartitionState(msgspec.Struct, frozen=True, kw_only=True):
    """One partition. ``leader`` is NO_NODE while there is none: never a made-up node."""

    replicas: tuple[NodeId, ...]
    isr: tuple[NodeId, ...]
    leader: NodeId
    leader_epoch: LeaderEpoch


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    topic_id: TopicId
    partitions: Mapping[PartitionIndex, PartitionState]
    configs: Mapping[str, str]


class TopicPartition(msgspec.Struct, frozen=True):
    """Names a partition for good: a topic that is deleted and made again has another id."""

    topic_id: TopicId
    topic: TopicName
    partition: PartitionIndex


class Delta(msgspec.Struct, frozen=True, kw_only=True):
    """What a replay changed, in the order in which a node has to carry it out."""

    deleted_topics: tuple[Topic, ...] = ()
    changed_partitions: tuple[TopicPartition, ...] = ()
    reconfigured_topics: tuple[TopicName, ...] = ()
    brokers_reconfigured: bool = False


class MetadataImage(msgspec.Struct, frozen=True, kw_only=True):
    #: End offset of the metadata log that this image stands for; grows with every replay.
    version: Offset = Offset(0)
    cluster_id: str = ""
    brokers: Mapping[NodeId, Broker] = MappingProxyType({})
    topics: Mapping[TopicName, Topic] = MappingProxyType({})
    topic_names: Mapping[TopicId, TopicName] = MappingProxyType({})
    #: Dynamic configs by node; the key None holds the cluster-wide defaults.
    broker_configs: Mapping[NodeId | None, Mapping[str, str]] = MappingProxyType({})
    next_producer_id: ProducerId = ProducerId(0)

    def topic_by_id(self, topic_id: TopicId) -> Topic | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def partition(self, topic: TopicName, partition: PartitionIndex) -> PartitionState | None:
        state = self.topics.get(topic)
        return None if state is None else state.partitions.get(partition)

    def partition_leader(self, topic: TopicName, partition: PartitionIndex) -> NodeId:
        """The node that leads the partition, or NO_NODE where there is none to name."""
        state = self.partition(topic, partition)
        return NO_NODE if state is None else state.leader

    def partition_replicas(self, topic: TopicName, partition: PartitionIndex) -> tuple[NodeId, ...]:
        state = self.partition(topic, partition)
        return () if state is None else state.replicas

    def replay(self, batch: Iterable[r.AnyRecord], version: Offset) -> tuple["MetadataImage", Delta]:
        """The image after the records of a committed batch, and what became different."""
        draft = _Draft(self)
        for record in batch:
            draft.apply(record)
        return draft.finish(version)


class _Draft:
    """The one mutable moment between two images. Mappings are copied on the first write to them."""

    def __init__(self, base: MetadataImage) -> None:
        self._base = base
        self._cluster_id = base.cluster_id
        self._next_producer_id = base.next_producer_id
        self._brokers = dict(base.brokers)
        self._topics = dict(base.topics)
        self._topic_names = dict(base.topic_names)
        self._broker_configs = dict(base.broker_configs)
        self._partitions: dict[TopicName, dict[PartitionIndex, PartitionState]] = {}
        self._configs: dict[TopicName, dict[str, str]] = {}
        self._deleted: list[Topic] = []
        self._changed: dict[TopicPartition, None] = {}
        self._reconfigured: dict[TopicName, None] = {}
        self._brokers_reconfigured = False

    def apply(self, record: r.AnyRecord) -> None:
        match record:
            case r.PartitionChanged():
                self._change_partition(record)
            case r.TopicCreated(name=name, topic_id=topic_id):
                self._topics[name] = Topic(name=name, topic_id=topic_id, partitions={}, configs={})
                self._topic_names[topic_id] = name
            case r.TopicDeleted(topic_id=topic_id):
                self._delete_topic(topic_id)
            case r.TopicConfigChanged(topic_id=topic_id, key=key, value=value):
                name = self._topic_names[topic_id]
                configs = self._configs.setdefault(name, dict(self._topics[name].configs))
                _set_or_remove(configs, key, value)
                self._reconfigured[name] = None
            case r.BrokerConfigChanged(node_id=node_id, key=key, value=value):
                configs = dict(self._broker_configs.get(node_id, {}))
                _set_or_remove(configs, key, value)
                self._broker_configs[node_id] = configs
                self._brokers_reconfigured = True
            case r.BrokerRegistered():
                self._brokers[record.node_id] = Broker(
                    node_id=record.node_id,
                    broker_epoch=record.broker_epoch,
                    host=record.host,
                    port=record.port,
                    rack=record.rack,
                )
            case r.ProducerIdsAllocated(next_producer_id=next_producer_id):
                self._next_producer_id = next_producer_id
            case r.ClusterFormed(cluster_id=cluster_id):
                self._cluster_id = cluster_id
            case _:
                assert_never(record)

    def finish(self, version: Offset) -> tuple[MetadataImage, Delta]:
        for name in self._partitions.keys() | self._configs.keys():
            topic = self._topics[name]
            self._topics[name] = Topic(
                name=name,
                topic_id=topic.topic_id,
                partitions=self._partitions.get(name, topic.partitions),
                configs=self._configs.get(name, topic.configs),
            )
        image = MetadataImage(
            version=version,
            cluster_id=self._cluster_id,
            brokers=self._brokers,
            topics=self._topics,
            topic_names=self._topic_names,
            broker_configs=self._broker_configs,
            next_producer_id=self._next_producer_id,
        )
        delta = Delta(
            deleted_topics=tuple(self._deleted),
            changed_partitions=tuple(self._changed),
            reconfigured_topics=tuple(self._reconfigured),
            brokers_reconfigured=self._brokers_reconfigured,
        )
        return image, delta

    def _change_partition(self, record: r.PartitionChanged) -> None:
        name = self._topic_names[record.topic_id]
        partitions = self._partitions.setdefault(name, dict(self._topics[name].partitions))
        partitions[record.partition] = PartitionState(
            replicas=record.replicas, isr=record.isr, leader=record.leader, leader_epoch=record.leader_epoch
        )
        self._changed[TopicPartition(record.topic_id, name, record.partition)] = None

    def _delete_topic(self, topic_id: TopicId) -> None:
        name = self._topic_names.pop(topic_id)
        topic = self._topics.pop(name)
        partitions = self._partitions.pop(name, topic.partitions)
        self._configs.pop(name, None)
        self._reconfigured.pop(name, None)
        for changed in [c for c in self._changed if c.topic_id == topic_id]:
            del self._changed[changed]
        self._deleted.append(Topic(name=name, topic_id=topic_id, partitions=partitions, configs=topic.configs))


def _set_or_remove(configs: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        configs.pop(key, None)
    else:
        configs[key] = value
