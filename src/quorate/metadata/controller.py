"""The controller: decides commands into metadata records. Pure.

``decide`` reads an image and changes nothing; replaying the records is what makes a decision true. A command that
cannot be granted raises ``KafkaError`` with the code that the client is to see.
"""

from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never
from uuid import UUID

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, LeaderEpoch, NodeId, PartitionIndex, ProducerId, TopicId, TopicName
from quorate.metadata import commands as c
from quorate.metadata import records as r
from quorate.metadata.config_changes import decide_broker_configs, decide_topic_configs
from quorate.metadata.config_definitions import find_definition
from quorate.metadata.effective_configs import BrokerView, broker_value
from quorate.metadata.image import MetadataImage, PartitionState, Topic
from quorate.metadata.placement import place_partitions
from quorate.metadata.topic_configs import TOPIC_CONFIGS
from quorate.metadata.topic_names import check_topic_name, collision_key

MAX_PARTITIONS_PER_TOPIC = 10_000


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    records: tuple[r.AnyRecord, ...] = ()
    #: What the command is answered with: the topic for those that concern one, the first id of a producer id block.
    topic: Topic | None = None
    producer_id: ProducerId | None = None


class Controller:
    def __init__(self, view: BrokerView, new_uuid: Callable[[], UUID]) -> None:
        self._view = view
        self._new_uuid = new_uuid

    def decide(self, image: MetadataImage, command: c.Command) -> Decision:
        match command:
            case c.FormCluster():
                return Decision(records=(r.ClusterFormed(cluster_id=_cluster_id(self._new_uuid())),))
            case c.CreateTopic():
                return self._create_topic(image, command)
            case c.DeleteTopic(topic_id=topic_id):
                return _delete_topic(image, topic_id)
            case c.CreatePartitions():
                return _create_partitions(image, command)
            case c.AlterTopicConfigs():
                return Decision(records=decide_topic_configs(image, self._view, command))
            case c.AlterBrokerConfigs():
                return Decision(records=decide_broker_configs(image, self._view, command))
            case c.AllocateProducerIds(count=count):
                first = image.next_producer_id
                return Decision(
                    records=(r.ProducerIdsAllocated(next_producer_id=ProducerId(first + count)),), producer_id=first
                )
            case c.RegisterBroker():
                return _register_broker(image, command)
            case _:
                assert_never(command)

    def _create_topic(self, image: MetadataImage, command: c.CreateTopic) -> Decision:
        name = check_topic_name(command.name)
        _check_new_name(image, name)
        placements = self._placements(image, command)
        topic_id = TopicId(self._new_uuid())
        configs = _checked_configs(command)
        changed = _new_partitions(topic_id, 0, placements)
        return Decision(
            records=(
                r.TopicCreated(name=name, topic_id=topic_id),
                *changed,
                *(r.TopicConfigChanged(topic_id=topic_id, key=key, value=value) for key, value in configs.items()),
            ),
            topic=Topic(name=name, topic_id=topic_id, partitions=_states(changed), configs=configs),
        )

    def _placements(self, image: MetadataImage, command: c.CreateTopic) -> Sequence[tuple[NodeId, ...]]:
        if command.assignments is not None:
            if command.partition_count != -1 or command.replication_factor != -1:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "A manual partition assignment was specified, but a partition count or replication factor too.",
                )
            return _checked_assignments(image, command)
        count = command.partition_count
        if count == -1:
            count = _int(broker_value(image, self._view, "num.partitions"))
        _check_partition_count(count)
        factor = command.replication_factor
        if factor == -1:
            factor = _int(broker_value(image, self._view, "default.replication.factor"))
        if factor <= 0:
            raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
        if command.replication_factor_is_upper_bound:
            factor = max(1, min(factor, len(image.brokers)))
        return place_partitions(image, count=count, replication_factor=factor)


def _check_new_name(image: MetadataImage, name: TopicName) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    key = collision_key(name)
    for existing in image.topics:
        if collision_key(existing) == key:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {existing}"
            )


def _check_partition_count(count: int) -> None:
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not exceed {MAX_PARTITIONS_PER_TOPIC}."
        )


def _checked_configs(command: c.CreateTopic) -> dict[str, str]:
    configs: dict[str, str] = {}
    for key, value in command.configs.items():
        if value is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {key}")
        find_definition(TOPIC_CONFIGS, key).parse(value)
        configs[key] = value
    return configs


def _checked_assignments(image: MetadataImage, command: c.CreateTopic) -> list[tuple[NodeId, ...]]:
    assignments = command.assignments or {}
    if sorted(assignments) != list(range(len(assignments))) or not assignments:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions of a manual assignment must be 0, 1, 2 … without gaps."
        )
    placements = [assignments[PartitionIndex(index)] for index in range(len(assignments))]
    _check_placements(image, placements, len(placements[0]))
    return placements


def _check_placements(image: MetadataImage, placements: Iterable[tuple[NodeId, ...]], factor: int) -> None:
    for replicas in placements:
        if not replicas or len(set(replicas)) != len(replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment has no replica, or the same one twice."
            )
        if len(replicas) != factor:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All partitions of a topic must have the same replication factor."
            )
        for node in replicas:
            if node not in image.brokers:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"An assignment names broker {node}, which is not registered."
                )


def _new_partitions(
    topic_id: TopicId, first: int, placements: Iterable[tuple[NodeId, ...]]
) -> tuple[r.PartitionChanged, ...]:
    return tuple(
        r.PartitionChanged(
            topic_id=topic_id,
            partition=PartitionIndex(first + index),
            replicas=replicas,
            isr=replicas,
            leader=replicas[0],
            leader_epoch=LeaderEpoch(0),
        )
        for index, replicas in enumerate(placements)
    )


def _states(changed: Iterable[r.PartitionChanged]) -> dict[PartitionIndex, PartitionState]:
    return {
        change.partition: PartitionState(
            replicas=change.replicas, isr=change.isr, leader=change.leader, leader_epoch=change.leader_epoch
        )
        for change in changed
    }


def _delete_topic(image: MetadataImage, topic_id: TopicId) -> Decision:
    topic = image.topic_by_id(topic_id)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return Decision(records=(r.TopicDeleted(topic_id=topic_id),), topic=topic)


def _create_partitions(image: MetadataImage, command: c.CreatePartitions) -> Decision:
    topic = image.topics.get(command.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{command.name}' does not exist.")
    existing = len(topic.partitions)
    added = command.total_count - existing
    if added < 0:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {command.name} currently has {existing} partition(s); {command.total_count} would not be "
            "an increase.",
        )
    if added == 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    _check_partition_count(command.total_count)
    factor = len(topic.partitions[PartitionIndex(0)].replicas)
    placements: Sequence[tuple[NodeId, ...]]
    if command.assignments is None:
        placements = place_partitions(image, count=added, replication_factor=factor)
    else:
        placements = command.assignments
        if len(placements) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but {len(placements)} assignment(s) were given.",
            )
        _check_placements(image, placements, factor)
    return Decision(records=_new_partitions(topic.topic_id, existing, placements), topic=topic)


def _register_broker(image: MetadataImage, command: c.RegisterBroker) -> Decision:
    """A new start of a broker: a new broker epoch, and a new leader epoch for every partition that it leads.

    What it wrote before a crash may be lost in part; the new epoch keeps those offsets apart from the ones that follow.
    """
    registered = r.BrokerRegistered(
        node_id=command.node_id,
        broker_epoch=BrokerEpoch(image.version + 1),
        host=command.host,
        port=command.port,
        rack=command.rack,
    )
    led = tuple(
        r.PartitionChanged(
            topic_id=topic.topic_id,
            partition=partition,
            replicas=state.replicas,
            isr=state.isr,
            leader=state.leader,
            leader_epoch=LeaderEpoch(state.leader_epoch + 1),
        )
        for topic in image.topics.values()
        for partition, state in topic.partitions.items()
        if state.leader == command.node_id
    )
    return Decision(records=(registered, *led))


def _cluster_id(uuid: UUID) -> str:
    """As Kafka writes ids: URL-safe base64 without padding."""
    return urlsafe_b64encode(uuid.bytes).rstrip(b"=").decode()


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
