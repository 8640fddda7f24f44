"""The value of a config that is in force, and its source.

A topic's own value wins, then the broker's: set at run time for one node, set at run time for all, given in the node's
file, and last the default. Every reader of configs, the log included, uses this module.
"""

from collections.abc import Iterator, Mapping
from functools import cache

import msgspec

from quorate.kernel.ids import GroupId, NodeId, TopicName
from quorate.metadata.core.broker_configs import BROKER_CONFIGS, find_broker_definition
from quorate.metadata.core.config_definitions import ConfigDefinition, ConfigValue
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.topic_configs import TOPIC_CONFIGS
from quorate.protocol.codes import ConfigSource


class ConfigEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One place that gives a value: its name there, the text and the kind of place."""

    name: str
    value: str
    source: ConfigSource


class BrokerView(msgspec.Struct, frozen=True, kw_only=True):
    """A node's own part in resolving configs: its id, and the configs in its file."""

    node_id: NodeId
    static_configs: Mapping[str, str]


def broker_entries(image: MetadataImage, view: BrokerView, definition: ConfigDefinition) -> Iterator[ConfigEntry]:
    """Every place that gives this broker config a value, the one in force first."""
    name = definition.name
    layers = (
        (ConfigSource.DYNAMIC_BROKER, image.broker_configs.get(view.node_id, {})),
        (ConfigSource.DYNAMIC_DEFAULT_BROKER, image.broker_configs.get(None, {})),
        (ConfigSource.STATIC_BROKER, view.static_configs),
    )
    for source, values in layers:
        if name in values:
            yield ConfigEntry(name=name, value=values[name], source=source)
    yield ConfigEntry(name=name, value=definition.default, source=ConfigSource.DEFAULT)


def topic_entries(
    image: MetadataImage, view: BrokerView, overrides: Mapping[str, str], definition: ConfigDefinition
) -> Iterator[ConfigEntry]:
    """Every place that gives this topic config a value, the one in force first."""
    if definition.name in overrides:
        yield ConfigEntry(name=definition.name, value=overrides[definition.name], source=ConfigSource.DYNAMIC_TOPIC)
    if definition.broker_synonym is not None:
        yield from broker_entries(image, view, BROKER_CONFIGS[definition.broker_synonym])
    else:
        yield ConfigEntry(name=definition.name, value=definition.default, source=ConfigSource.DEFAULT)


def shown_topic_configs(overrides: Mapping[str, str]) -> list[ConfigDefinition]:
    """The definitions that clients are shown."""
    return [each for each in TOPIC_CONFIGS.values() if not each.is_state or each.name in overrides]


def group_entries(
    image: MetadataImage, view: BrokerView, group_id: GroupId, definition: ConfigDefinition
) -> Iterator[ConfigEntry]:
    """Every place that gives this config of a consumer group a value, the one in force first."""
    own = image.group_configs.get(group_id, {})
    if definition.name in own:
        yield ConfigEntry(name=definition.name, value=own[definition.name], source=ConfigSource.GROUP)
    assert definition.broker_synonym is not None
    yield from broker_entries(image, view, BROKER_CONFIGS[definition.broker_synonym])


def broker_value(image: MetadataImage, view: BrokerView, name: str) -> ConfigValue:
    definition = find_broker_definition(name)
    return definition.parse(next(broker_entries(image, view, definition)).value)


def topic_value(image: MetadataImage, view: BrokerView, topic: TopicName, name: str) -> ConfigValue:
    """One config in force for the topic."""
    definition = TOPIC_CONFIGS[name]
    return definition.parse(next(topic_entries(image, view, _overrides(image, topic), definition)).value)


def topic_values(image: MetadataImage, view: BrokerView, topic: TopicName) -> dict[str, ConfigValue]:
    """All configs in force for the topic."""
    overrides = _overrides(image, topic)
    # As ``topic_entries``, without the entries: a node asks for all configs of each topic that it has a replica of.
    values = dict(_default_values())
    for layer in (view.static_configs, image.broker_configs.get(None, {}), image.broker_configs.get(view.node_id, {})):
        for definition in _taken_from_brokers(layer):
            values[definition.name] = definition.parse(layer[definition.broker_synonym or ""])
    for name in TOPIC_CONFIGS.keys() & overrides.keys():
        values[name] = TOPIC_CONFIGS[name].parse(overrides[name])
    return values


@cache
def _default_values() -> dict[str, ConfigValue]:
    return {
        name: definition.parse(BROKER_CONFIGS[definition.broker_synonym or ""].default)
        if definition.broker_synonym is not None
        else definition.parse(definition.default)
        for name, definition in TOPIC_CONFIGS.items()
    }


def _taken_from_brokers(layer: Mapping[str, str]) -> list[ConfigDefinition]:
    """The topic configs whose value some broker config of the layer gives."""
    return [each for name in layer for each in _by_synonym().get(name, ())]


@cache
def _by_synonym() -> dict[str, list[ConfigDefinition]]:
    found: dict[str, list[ConfigDefinition]] = {}
    for definition in TOPIC_CONFIGS.values():
        if definition.broker_synonym is not None:
            found.setdefault(definition.broker_synonym, []).append(definition)
    return found


def _overrides(image: MetadataImage, topic: TopicName) -> Mapping[str, str]:
    state = image.topics.get(topic)
    return {} if state is None else state.configs
