"""The one mutable moment between two images: records are applied to a draft, which becomes the next image.

Tables are copied on the first write to them, so that a batch costs what it touches; the rest is shared between images.
The index from nodes to the partitions that they hold is kept in step with the partitions in the same way.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar, assert_never

import msgspec

from quorate.kernel.ids import GroupId, NodeId, Offset, PartitionIndex, TopicId, TopicName
from quorate.kernel.topic_names import can_collide, collision_key
from quorate.metadata.core import records as r
from quorate.metadata.core.image_parts import (
    Broker,
    Deletions,
    Delta,
    HostedPartitions,
    ImageTables,
    PartitionState,
    Topic,
    TopicIdPartition,
)
from quorate.metadata.core.quota_entities import QuotaEntity
from quorate.metadata.core.security_state import SecurityDraft

ImageT = TypeVar("ImageT", bound=ImageTables)
Value = TypeVar("Value")
_BrokerRecord = (
    r.BrokerRegistered
    | r.BrokerFenced
    | r.BrokerUnfenced
    | r.BrokerShutdownStarted
    | r.BrokerRoomChanged
    | r.BrokerUnregistered
)
Key = TypeVar("Key")


class ImageDraft(Generic[ImageT]):
    def __init__(self, base: ImageT) -> None:
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
        self._security = SecurityDraft(base.security)
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
            case (
                r.AclCreated()
                | r.AclDeleted()
                | r.ScramCredentialChanged()
                | r.DelegationTokenChanged()
                | r.DelegationTokenRemoved()
            ):
                self._security.apply(record)
            case _:
                self._apply_to_broker(record)

    def finish(self, version: Offset) -> tuple[ImageT, Delta]:
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
            security=self._security.finish(),
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
            endpoints=record.endpoints,
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


def partition_record(name: TopicIdPartition, state: PartitionState, *, unclean: bool = False) -> r.PartitionChanged:
    """The state as it follows from the one before; a snapshot adds what does not."""
    return r.PartitionChanged(
        topic_id=name.topic_id,
        partition=name.partition,
        replicas=state.replicas,
        isr=state.isr,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        adding_replicas=state.adding_replicas,
        removing_replicas=state.removing_replicas,
        unclean=unclean,
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


class HostingDraft:
    """The index from nodes to the partitions they hold; only the nodes and topics that a batch touches are copied."""

    def __init__(self, base: Mapping[NodeId, HostedPartitions]) -> None:
        self._base = base
        self._touched: dict[NodeId, _NodeDraft] = {}

    def move(
        self, topic_id: TopicId, partition: PartitionIndex, old: PartitionState | None, new: PartitionState | None
    ) -> None:
        """The partition went from one state to another; None stands for a partition that is not there."""
        if old is not None and new is not None and (old.replicas, old.leader) == (new.replicas, new.leader):
            return
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)
        old_replicas = () if old is None else old.replicas
        new_replicas = () if new is None else new.replicas
        for node in old_replicas:
            if node not in new_replicas:
                self._node(node).indexes(topic_id).discard(partition)
        for node in new_replicas:
            if node not in old_replicas:
                self._node(node).indexes(topic_id).add(partition)

    def finish(self) -> Mapping[NodeId, HostedPartitions]:
        if not self._touched:
            return self._base
        hosted = dict(self._base)
        for node, draft in self._touched.items():
            if draft.replica_count:
                hosted[node] = draft.finish()
            else:
                hosted.pop(node, None)
        return hosted

    def _count(self, state: PartitionState, step: int) -> None:
        for node in state.replicas:
            self._node(node).replica_count += step
        self._node(state.replicas[0]).preferred_count += step
        if state.has_leader:
            self._node(state.leader).leader_count += step

    def _node(self, node: NodeId) -> "_NodeDraft":
        draft = self._touched.get(node)
        if draft is None:
            draft = self._touched[node] = _NodeDraft(self._base.get(node) or HostedPartitions())
        return draft


class _NodeDraft:
    def __init__(self, base: HostedPartitions) -> None:
        self._base = base
        self._touched: dict[TopicId, set[PartitionIndex]] = {}
        self.replica_count = base.replica_count
        self.leader_count = base.leader_count
        self.preferred_count = base.preferred_count

    def indexes(self, topic_id: TopicId) -> set[PartitionIndex]:
        touched = self._touched.get(topic_id)
        if touched is None:
            touched = self._touched[topic_id] = set(self._base.replicas.get(topic_id, ()))
        return touched

    def finish(self) -> HostedPartitions:
        return msgspec.structs.replace(
            self._base,
            replicas=self._replicas(),
            replica_count=self.replica_count,
            leader_count=self.leader_count,
            preferred_count=self.preferred_count,
        )

    def _replicas(self) -> Mapping[TopicId, frozenset[PartitionIndex]]:
        if not self._touched:
            return self._base.replicas
        replicas = dict(self._base.replicas)
        for topic_id, indexes in self._touched.items():
            if indexes:
                replicas[topic_id] = frozenset(indexes)
            else:
                replicas.pop(topic_id, None)
        return replicas


class CopyOnWrite(Generic[Key, Value]):
    """A mapping that is copied when it is first written to, so that untouched tables are shared between images."""

    def __init__(self, base: Mapping[Key, Value]) -> None:
        self._own: dict[Key, Value] | None = None
        #: The mapping as it is now; after the last write, the next image keeps it.
        self.current: Mapping[Key, Value] = base

    def __getitem__(self, key: Key) -> Value:
        return self.current[key]

    def get(self, key: Key) -> Value | None:
        return self.current.get(key)

    def __setitem__(self, key: Key, value: Value) -> None:
        self._writable()[key] = value

    def pop(self, key: Key) -> Value:
        return self._writable().pop(key)

    def discard(self, key: Key) -> None:
        if key in self.current:
            self._writable().pop(key)

    def _writable(self) -> dict[Key, Value]:
        if self._own is None:
            self._own = dict(self.current)
            self.current = self._own
        return self._own
