"""Deciding changes of the configs of topics, brokers and groups."""

from collections.abc import Callable, Iterable, Mapping
from typing import cast

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core import records as r
from quorate.metadata.core.broker_configs import broker_definitions
from quorate.metadata.core.commands import (
    AlterBrokerConfigs,
    AlterGroupConfigs,
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
)
from quorate.metadata.core.config_definitions import ConfigDefinition, ConfigType, find_definition
from quorate.metadata.core.coordinator_configs import GROUP_CONFIG_LIMITS, GROUP_CONFIGS
from quorate.metadata.core.effective_configs import (
    BrokerView,
    broker_entries,
    broker_value,
    group_entries,
    topic_entries,
)
from quorate.metadata.core.elections import ElectionRules, elect_leaderless
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS


def decide_topic_configs(
    image: MetadataImage, rules: ElectionRules, command: AlterTopicConfigs
) -> tuple[r.TopicConfigChanged | r.PartitionChanged, ...]:
    """Partitions without a leader get one with the new configs, should these allow an unclean election."""
    topic = image.topics.get(command.name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{command.name}' does not exist.")
    changes = _that_matter(TOPIC_CONFIGS, command.changes)
    values = _new_values(
        TOPIC_CONFIGS,
        changes,
        replaced=topic.configs if command.replace_all else {},
        in_force=lambda definition: next(topic_entries(image, rules.view, topic.configs, definition)).value,
    )
    _refuse_states(topic.configs, values)
    changed = tuple(
        r.TopicConfigChanged(topic_id=topic.topic_id, key=key, value=value)
        for key, value in values.items()
        if topic.configs.get(key) != value
    )
    reconfigured, _ = image.replay(changed, image.version)
    return (*changed, *elect_leaderless(reconfigured, rules, topic))


def decide_broker_configs(
    image: MetadataImage, view: BrokerView, command: AlterBrokerConfigs
) -> tuple[r.BrokerConfigChanged, ...]:
    if command.node_id is not None and command.node_id not in image.brokers:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker {command.node_id} is not registered.")
    current = image.broker_configs.get(command.node_id, {})
    definitions = broker_definitions([*current, *(change.key for change in command.changes)])
    changes = _that_matter(definitions, command.changes)
    for change in changes:
        if definitions[change.key].read_only:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Cannot update {change.key} while the broker runs: it is read-only."
            )
    values = _new_values(
        definitions,
        changes,
        replaced=current if command.replace_all else {},
        in_force=lambda definition: next(broker_entries(image, view, definition)).value,
    )
    return tuple(
        r.BrokerConfigChanged(node_id=command.node_id, key=key, value=value)
        for key, value in values.items()
        if current.get(key) != value
    )


def decide_group_configs(
    image: MetadataImage, view: BrokerView, command: AlterGroupConfigs
) -> tuple[r.GroupConfigChanged, ...]:
    if not command.group_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "The name of a group must not be empty.")
    current = image.group_configs.get(command.group_id, {})
    values = _new_values(
        GROUP_CONFIGS,
        _that_matter(GROUP_CONFIGS, command.changes),
        replaced=current if command.replace_all else {},
        in_force=lambda definition: next(group_entries(image, view, command.group_id, definition)).value,
    )
    for key, value in values.items():
        if value is not None:
            _check_limits(image, view, key, int(value))
    return tuple(
        r.GroupConfigChanged(group_id=command.group_id, key=key, value=value)
        for key, value in values.items()
        if current.get(key) != value
    )


def _check_limits(image: MetadataImage, view: BrokerView, key: str, value: int) -> None:
    low, high = (cast(int, broker_value(image, view, name)) for name in GROUP_CONFIG_LIMITS[key])
    if not low <= value <= high:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"The configuration {key} must be from {low} to {high}.")


def _refuse_states(current: Mapping[str, str], values: Mapping[str, str | None]) -> None:
    for key, value in values.items():
        if TOPIC_CONFIGS[key].is_state and value is not None and value != current.get(key):
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"The configuration {key} is given to a topic when it is created, and can only be taken away.",
            )


def _that_matter(definitions: Mapping[str, ConfigDefinition], changes: Iterable[ConfigChange]) -> list[ConfigChange]:
    """Without deletions of configs that are not known: MirrorMaker asks for them, and there is nothing to delete."""
    known = []
    for change in changes:
        if change.operation is not ConfigOperation.DELETE:
            find_definition(definitions, change.key)
        if change.key in definitions:
            known.append(change)
    return known


def _new_values(
    definitions: Mapping[str, ConfigDefinition],
    changes: Iterable[ConfigChange],
    *,
    replaced: Mapping[str, str],
    in_force: Callable[[ConfigDefinition], str],
) -> dict[str, str | None]:
    values: dict[str, str | None] = dict.fromkeys(replaced)
    seen: set[str] = set()
    for change in changes:
        if change.key in seen:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"The configuration {change.key} is named twice.")
        seen.add(change.key)
        definition = definitions[change.key]
        value = _changed_value(definition, change, in_force)
        if value is not None:
            definition.parse(value)
        values[change.key] = value
    return values


def _changed_value(
    definition: ConfigDefinition, change: ConfigChange, in_force: Callable[[ConfigDefinition], str]
) -> str | None:
    if change.operation is ConfigOperation.DELETE:
        return None
    if change.value is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"A null value was given for the configuration {change.key}.")
    if change.operation is ConfigOperation.SET:
        return change.value
    if definition.type is not ConfigType.LIST:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"The configuration {change.key} is not a list: nothing can be added or taken."
        )
    present = [part for part in in_force(definition).split(",") if part]
    given = [part.strip() for part in change.value.split(",") if part.strip()]
    if change.operation is ConfigOperation.APPEND:
        return ",".join(present + [part for part in given if part not in present])
    return ",".join(part for part in present if part not in given)
