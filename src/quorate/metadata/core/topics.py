"""Deciding the life of a topic: created, grown, deleted.

Partitions are created in one way only, by ``_new_partitions``.
"""

from collections.abc import Callable, Iterable, Sequence
from uuid import UUID

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, PartitionIndex, QuorumLeader, TopicId, TopicName
from quorate.kernel.topic_names import can_collide, check_new_topic_name, collision_key, is_reserved
from quorate.metadata.core import commands as c
from quorate.metadata.core import records as r
from quorate.metadata.core.config_definitions import find_definition
from quorate.metadata.core.decisions import CarriedOut, CreatedTopic, Decision, done
from quorate.metadata.core.effective_configs import broker_value
from quorate.metadata.core.elections import ElectionRules, first_candidate
from quorate.metadata.core.image import MetadataImage, PartitionState, Topic
from quorate.metadata.core.image_draft import partition_state
from quorate.metadata.core.placement import place_partitions
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS

MAX_PARTITIONS_PER_TOPIC = 10_000


def create_topic(
    image: MetadataImage, rules: ElectionRules, command: c.CreateTopic, new_uuid: Callable[[], UUID]
) -> Decision[CreatedTopic]:
    name = check_new_topic_name(command.name)
    existing = image.topics.get(name)
    if existing is not None and existing.topic_id == command.topic_id:
        return Decision(answer=CreatedTopic(existing))
    was_deleted = command.topic_id in image.deletions.topic_ids
    if not was_deleted:
        _check_new_name(image, name)
    if command.topic_id is not None and command.topic_id in image.topic_names:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The topic id {command.topic_id} names another topic.")
    placements = _placements(image, rules, command)
    topic_id = TopicId(new_uuid()) if command.topic_id is None else command.topic_id
    configs = _checked_configs(command)
    changed = _new_partitions(image, name, topic_id, 0, placements, favoured=rules.favoured)
    answer = CreatedTopic(Topic(name=name, topic_id=topic_id, partitions=_states(changed), configs=configs))
    if was_deleted:  # The first time did it. A topic that came back would find logs that a record has condemned.
        return Decision(answer=answer)
    return Decision(
        records=(
            r.TopicCreated(name=name, topic_id=topic_id),
            *changed,
            *(r.TopicConfigChanged(topic_id=topic_id, key=key, value=value) for key, value in configs.items()),
        ),
        answer=answer,
    )


def delete_topic(image: MetadataImage, topic_id: TopicId) -> Decision[CarriedOut]:
    if image.topic_by_id(topic_id) is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return done(r.TopicDeleted(topic_id=topic_id))


def create_partitions(image: MetadataImage, rules: ElectionRules, command: c.CreatePartitions) -> Decision[CarriedOut]:
    topic = image.topics.get(command.name)
    if topic is None or is_reserved(command.name):
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{command.name}' does not exist.")
    existing = len(topic.partitions)
    added = command.total_count - existing
    _check_growth(command, existing)
    factor = len(topic.partitions[PartitionIndex(0)].target_replicas)
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
    changed = _new_partitions(image, topic.name, topic.topic_id, existing, placements, favoured=rules.favoured)
    return done(*changed)


def _placements(image: MetadataImage, rules: ElectionRules, command: c.CreateTopic) -> Sequence[tuple[NodeId, ...]]:
    if command.assignments is not None:
        if command.partition_count != -1 or command.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but a partition count or replication factor too.",
            )
        return _checked_assignments(image, command)
    count = command.partition_count
    if count == -1:
        count = _int(broker_value(image, rules.view, "num.partitions"))
    _check_partition_count(count)
    factor = command.replication_factor
    if factor == -1:
        factor = _int(broker_value(image, rules.view, "default.replication.factor"))
    if factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if command.replication_factor_is_upper_bound:
        factor = max(1, min(factor, len(image.brokers)))
    return place_partitions(image, count=count, replication_factor=factor)


def _check_new_name(image: MetadataImage, name: TopicName) -> None:
    if name in image.topics:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    existing = image.collision_keys.get(collision_key(name)) if can_collide(name) else None
    if existing is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {existing}")


def _check_partition_count(count: int) -> None:
    if count <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if count > MAX_PARTITIONS_PER_TOPIC:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS, f"Number of partitions must not exceed {MAX_PARTITIONS_PER_TOPIC}."
        )


def _check_growth(command: c.CreatePartitions, existing: int) -> None:
    if command.total_count < existing:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {command.name} currently has {existing} partition(s); {command.total_count} would not be "
            "an increase.",
        )
    if command.total_count == existing:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {existing} partition(s).")
    _check_partition_count(command.total_count)


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
        if not any(image.is_active(node) for node in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "All brokers of an assignment are fenced or shutting down."
            )


def _new_partitions(
    image: MetadataImage,
    name: TopicName,
    topic_id: TopicId,
    first: int,
    placements: Iterable[tuple[NodeId, ...]],
    *,
    favoured: QuorumLeader | None,
) -> tuple[r.PartitionChanged, ...]:
    """Every replica that is active is in sync from the start: an empty log has nothing to catch up with.

    Clients ignore metadata with a lower leader epoch than the one they know of the partition, also when its topic was
    deleted and created again: then they would write to the old leader for ever.
    """
    leader_epoch = image.deletions.first_leader_epoch(name)
    records = []
    for index, replicas in enumerate(placements, first):
        active = tuple(node for node in replicas if image.is_active(node))
        isr = tuple(node for node in active if image.has_room(node)) or active
        records.append(
            r.PartitionChanged(
                topic_id=topic_id,
                partition=PartitionIndex(index),
                replicas=replicas,
                isr=isr,
                leader=first_candidate(replicas, isr, image.is_active, image.has_room, favoured),
                leader_epoch=leader_epoch,
            )
        )
    return tuple(records)


def _states(changed: Iterable[r.PartitionChanged]) -> dict[PartitionIndex, PartitionState]:
    return {change.partition: partition_state(change) for change in changed}


def _int(value: object) -> int:
    assert isinstance(value, int)
    return value
