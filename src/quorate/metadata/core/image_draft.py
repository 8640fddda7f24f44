"""The one mutable moment between two images: records are applied to a draft, which becomes the next image.

Tables are copied on the first write to them, so that a batch costs what it touches.
"""

from typing import TYPE_CHECKING, TypeVar, assert_never

import msgspec

from quorate.kernel.ids import GroupId, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import can_collide, collision_key
from quorate.metadata.core import records as r
from quorate.metadata.core.copy_on_write import CopyOnWrite
from quorate.metadata.core.deletions import Deletions
from quorate.metadata.core.hosting_index import HostingDraft
from quorate.metadata.core.image_parts import Broker, Delta, PartitionState, Topic, TopicIdPartition
from quorate.metadata.core.quota_entities import QuotaEntity

if TYPE_CHECKING:
    from quorate.metadata.core.image import MetadataImage

Value = TypeVar("Value")
_BrokerRecord = (
    r.BrokerRegistered
    | r.BrokerFenced
    | r.BrokerUnfenced
    | r.BrokerShutdownStarted
    | r.BrokerRoomChanged
    | r.BrokerUnregistered
)


class ImageDraft:
    def __init__(self, base: "MetadataImage") -> None:
        self._base = base
        self._cluster_id = base.cluster_id
        self._next_producer_id = base.next_producer_id
        self._last_broker_epoch = base.last_broker_epoch
        self._brokers = CopyOnWrite(base.brokers)
        self._former_directories = CopyOnWrite(base.former_directories)
        self._topics = CopyOnWrite(base.topics)
        self._topic_names = CopyOnWrite(base.topic_names)
        self._collision_keys = CopyOnWrite(base.collision_keys)
        self._broker_configs = CopyOnWrite(base.broker_configs)
        self._group_configs = CopyOnWrite(base.group_configs)
        self._client_quotas = CopyOnWrite(base.client_quotas)
        self._hosting = HostingDraft(base.hosted)
        self._partitions: dict[TopicName, dict[PartitionIndex, PartitionState]] = {}
        self._configs: dict[TopicName, dict[str, str]] = {}
        self._changes = _Changes()

    def apply(self, record: r.AnyRecord) -> None:
        match record:
            case r.PartitionChanged():
                self._change_partition(record)
            case r.TopicCreated(name=name, topic_id=topic_id):
                self._create_topic(name, topic_id)
            case r.TopicDeleted(topic_id=topic_id):
                self._delete_topic(topic_id)
            case r.TopicConfigChanged(topic_id=topic_id, key=key, value=value):
                self._change_topic_config(topic_id, key, value)
            case r.BrokerConfigChanged(node_id=node_id, key=key, value=value):
                self._change_broker_config(node_id, key, value)
            case r.GroupConfigChanged(group_id=group_id, key=key, value=value):
                self._change_group_config(group_id, key, value)
            case r.ClientQuotaChanged(entity=entity, key=key, value=value):
                self._change_client_quota(entity, key, value)
            case r.ProducerIdsAllocated(next_producer_id=next_producer_id):
                self._next_producer_id = next_producer_id
            case r.ClusterFormed(cluster_id=cluster_id):
                self._cluster_id = cluster_id
            case _:
                self._apply_to_broker(record)

    def finish(self, version: Offset) -> "tuple[MetadataImage, Delta]":
        for name in self._partitions.keys() | self._configs.keys():
            topic = self._topics[name]
            self._topics[name] = Topic(
                name=name,
                topic_id=topic.topic_id,
                partitions=self._partitions.get(name, topic.partitions),
                configs=self._configs.get(name, topic.configs),
            )
        image = msgspec.structs.replace(
            self._base,
            version=version,
            cluster_id=self._cluster_id,
            brokers=self._brokers.current,
            former_directories=self._former_directories.current,
            last_broker_epoch=self._last_broker_epoch,
            topics=self._topics.current,
            topic_names=self._topic_names.current,
            collision_keys=self._collision_keys.current,
            deletions=self._changes.deletions(self._base.deletions),
            hosted=self._hosting.finish(),
            broker_configs=self._broker_configs.current,
            group_configs=self._group_configs.current,
            client_quotas=self._client_quotas.current,
            next_producer_id=self._next_producer_id,
        )
        return image, self._changes.delta()

    def _apply_to_broker(self, record: _BrokerRecord) -> None:
        self._changes.brokers[record.node_id] = None
        match record:
            case r.BrokerRegistered():
                self._register_broker(record)
            case r.BrokerFenced(node_id=node_id):
                self._change_broker(node_id, fenced=True)
            case r.BrokerUnfenced(node_id=node_id):
                self._change_broker(node_id, fenced=False)
            case r.BrokerShutdownStarted(node_id=node_id):
                self._change_broker(node_id, in_controlled_shutdown=True)
            case r.BrokerRoomChanged(node_id=node_id, has_room=has_room):
                self._change_broker(node_id, has_room=has_room)
            case r.BrokerUnregistered(node_id=node_id):
                self._former_directories[node_id] = self._brokers.pop(node_id).directory_id
            case _:
                assert_never(record)

    def _create_topic(self, name: TopicName, topic_id: TopicId) -> None:
        self._topics[name] = Topic(name=name, topic_id=topic_id, partitions={}, configs={})
        self._topic_names[topic_id] = name
        if can_collide(name):
            self._collision_keys[collision_key(name)] = name

    def _change_partition(self, record: r.PartitionChanged) -> None:
        name = self._topic_names[record.topic_id]
        partitions = self._partitions.get(name)
        if partitions is None:
            partitions = self._partitions[name] = dict(self._topics[name].partitions)
        old = partitions.get(record.partition)
        new = partitions[record.partition] = partition_state(record, old)
        self._hosting.move(record.topic_id, record.partition, old, new)
        self._changes.partition_changed(TopicIdPartition(record.topic_id, name, record.partition), old, new)
        if record.unclean:
            self._changes.unclean[TopicIdPartition(record.topic_id, name, record.partition)] = None

    def _change_topic_config(self, topic_id: TopicId, key: str, value: str | None) -> None:
        name = self._topic_names[topic_id]
        configs = self._configs.get(name)
        if configs is None:
            configs = self._configs[name] = dict(self._topics[name].configs)
        _set_or_remove(configs, key, value)
        self._changes.reconfigured[name] = None

    def _change_broker_config(self, node_id: NodeId | None, key: str, value: str | None) -> None:
        configs = dict(self._broker_configs.get(node_id) or {})
        _set_or_remove(configs, key, value)
        if configs:
            self._broker_configs[node_id] = configs
        else:
            self._broker_configs.discard(node_id)
        self._changes.brokers_reconfigured = True

    def _change_group_config(self, group_id: GroupId, key: str, value: str | None) -> None:
        configs = dict(self._group_configs.get(group_id) or {})
        _set_or_remove(configs, key, value)
        if configs:
            self._group_configs[group_id] = configs
        else:
            self._group_configs.discard(group_id)

    def _change_client_quota(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        quotas = dict(self._client_quotas.get(entity) or {})
        _set_or_remove(quotas, key, value)
        if quotas:
            self._client_quotas[entity] = quotas
        else:
            self._client_quotas.discard(entity)

    def _register_broker(self, record: r.BrokerRegistered) -> None:
        self._former_directories.discard(record.node_id)
        self._brokers[record.node_id] = Broker(
            node_id=record.node_id,
            broker_epoch=record.broker_epoch,
            host=record.host,
            port=record.port,
            rack=record.rack,
            incarnation=record.incarnation,
            directory_id=record.directory_id,
            peer_address=record.peer_address,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            has_room=record.has_room,
        )
        self._last_broker_epoch = max(self._last_broker_epoch, record.broker_epoch)

    def _change_broker(self, node_id: NodeId, **changes: bool) -> None:
        self._brokers[node_id] = msgspec.structs.replace(self._brokers[node_id], **changes)

    def _delete_topic(self, topic_id: TopicId) -> None:
        name = self._topic_names.pop(topic_id)
        topic = self._topics.pop(name)
        partitions = self._partitions.pop(name, topic.partitions)
        configs = self._configs.pop(name, topic.configs)
        self._collision_keys.discard(collision_key(name))
        for index, state in partitions.items():
            self._hosting.move(topic_id, index, state, None)
        self._changes.topic_deleted(Topic(name=name, topic_id=topic_id, partitions=partitions, configs=configs))


class _Changes:
    """Collects the delta. Dictionaries stand for sets that keep their order."""

    def __init__(self) -> None:
        self.brokers: dict[NodeId, None] = {}
        self.brokers_reconfigured = False
        self.reconfigured: dict[TopicName, None] = {}
        self.unclean: dict[TopicIdPartition, None] = {}
        self._partitions: dict[TopicIdPartition, None] = {}
        self._leaders: dict[TopicIdPartition, None] = {}
        self._deleted: list[Topic] = []

    def partition_changed(self, name: TopicIdPartition, old: PartitionState | None, new: PartitionState) -> None:
        self._partitions[name] = None
        if old is None or (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch):
            self._leaders[name] = None

    def topic_deleted(self, topic: Topic) -> None:
        self.reconfigured.pop(topic.name, None)
        for changed in (self._partitions, self._leaders, self.unclean):
            for name in [name for name in changed if name.topic_id == topic.topic_id]:
                del changed[name]
        self._deleted.append(topic)

    def deletions(self, before: Deletions) -> Deletions:
        return before.after(self._deleted) if self._deleted else before

    def delta(self) -> Delta:
        return Delta(
            deleted_topics=tuple(self._deleted),
            changed_partitions=tuple(self._partitions),
            changed_leaders=tuple(self._leaders),
            unclean_elections=tuple(self.unclean),
            reconfigured_topics=tuple(self.reconfigured),
            brokers_reconfigured=self.brokers_reconfigured,
            changed_brokers=tuple(self.brokers),
        )


def partition_state(record: r.PartitionChanged, old: PartitionState | None = None) -> PartitionState:
    return PartitionState(
        replicas=record.replicas,
        isr=record.isr,
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding_replicas=record.adding_replicas,
        removing_replicas=record.removing_replicas,
        former_replicas=record.former_replicas if old is None else _former_replicas(old, record.replicas),
    )


def _former_replicas(old: PartitionState, replicas: tuple[NodeId, ...]) -> tuple[NodeId, ...]:
    if old.replicas == replicas:
        return old.former_replicas
    return tuple(sorted({*old.former_replicas, *old.replicas} - set(replicas)))


def _set_or_remove(table: dict[str, Value], key: str, value: Value | None) -> None:
    if value is None:
        table.pop(key, None)
    else:
        table[key] = value
