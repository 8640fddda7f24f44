"""Kafka's codes that are plain numbers in the schemas of its messages, for all who write or read those fields."""

from enum import IntEnum


class ResourceType(IntEnum):
    """The resources that have configs."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """The place that a config's value comes from, as DescribeConfigs reports it."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    GROUP = 8
