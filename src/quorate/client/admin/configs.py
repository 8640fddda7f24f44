"""Configs of topics and brokers: read with where each value comes from, changed one by one."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import partial

import msgspec

from quorate.client.cluster import Cluster
from quorate.client.cluster_metadata import LiveBroker
from quorate.client.errors import check
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NodeId, TopicName
from quorate.protocol.codes import ConfigSource, ResourceType
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from quorate.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class ConfigResource(msgspec.Struct, frozen=True):
    kind: ResourceType
    name: str


class DescribedConfig(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    #: None where it is not set, or not shown because it is sensitive.
    value: str | None
    source: ConfigSource
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_set_on_topic(self) -> bool:
        """Whether it was set for this very topic, rather than taken from brokers or defaults."""
        return self.source is ConfigSource.DYNAMIC_TOPIC


class _Operation(IntEnum):
    SET = 0
    DELETE = 1


Entries = dict[str, DescribedConfig]


class Configs:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe_topics(self, names: Iterable[str]) -> dict[TopicName, Entries]:
        found = self.describe([ConfigResource(ResourceType.TOPIC, name) for name in names])
        return {TopicName(resource.name): entries for resource, entries in found.items()}

    def describe(self, resources: Iterable[ConfigResource]) -> dict[ConfigResource, Entries]:
        """All configs of each resource. A broker is asked for its own; any broker knows the topics'."""
        found: dict[ConfigResource, Entries] = {}
        for broker, group in self._by_broker(resources).items():
            found |= self._cluster.retry("DescribeConfigs", partial(self._describe, broker, group))
        return found

    def alter_topic(
        self,
        name: str,
        *,
        values: Mapping[str, str] | None = None,
        delete: Iterable[str] = (),
    ) -> None:
        """Change these configs of a topic and leave all others as they are."""
        self.alter(ConfigResource(ResourceType.TOPIC, name), values or {}, delete)

    def alter(self, resource: ConfigResource, new_values: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        changes = [
            AlterableConfig(name=name, config_operation=_Operation.SET, value=value)
            for name, value in new_values.items()
        ]
        changes += [AlterableConfig(name=name, config_operation=_Operation.DELETE, value=None) for name in delete]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(resource_type=resource.kind, resource_name=resource.name, configs=changes)]
        )

        def attempt() -> None:
            (broker,) = self._by_broker([resource])
            if broker is None:
                answer = self._cluster.ask_controller(request, IncrementalAlterConfigsResponse)
            else:
                answer = self._cluster.ask_node(broker, request, IncrementalAlterConfigsResponse)
            for result in answer.responses:
                check(result.error_code, f"alter the configs of {resource.name}", result.error_message)

        self._cluster.retry("IncrementalAlterConfigs", attempt)

    def _describe(self, broker: LiveBroker | None, resources: list[ConfigResource]) -> dict[ConfigResource, Entries]:
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=resource.kind, resource_name=resource.name, configuration_keys=None
                )
                for resource in resources
            ]
        )
        if broker is None:
            answer = self._cluster.ask_any(request, DescribeConfigsResponse)
        else:
            answer = self._cluster.ask_node(broker, request, DescribeConfigsResponse)
        found = {}
        for result in answer.results:
            check(result.error_code, f"describe the configs of {result.resource_name}", result.error_message)
            resource = ConfigResource(ResourceType(result.resource_type), result.resource_name)
            found[resource] = {entry.name: _read_entry(entry) for entry in result.configs}
        return found

    def _by_broker(self, resources: Iterable[ConfigResource]) -> dict[LiveBroker | None, list[ConfigResource]]:
        """Whom to ask about what; None stands for any broker."""
        groups: dict[LiveBroker | None, list[ConfigResource]] = {}
        for resource in resources:
            broker = None
            if resource.kind is ResourceType.BROKER and resource.name:
                broker = self._cluster.brokers().get(NodeId(int(resource.name)))
                if broker is None:
                    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {resource.name}")
            groups.setdefault(broker, []).append(resource)
        return groups


def _read_entry(entry: DescribeConfigsResourceResult) -> DescribedConfig:
    try:
        source = ConfigSource(entry.config_source)
    except ValueError:
        source = ConfigSource.UNKNOWN
    return DescribedConfig(
        name=entry.name,
        value=entry.value,
        source=source,
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
    )
