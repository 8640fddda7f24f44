"""DescribeConfigs, versions 1 to 4, for topics, brokers and groups.

Gap: loggers and client metrics have no configs here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from quorate.broker.api import Api, HandlerResult
from quorate.broker.config_resources import ResourceType, parse_broker_name, parse_resource_type
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, TopicName
from quorate.metadata.core.broker_configs import BROKER_CONFIGS
from quorate.metadata.core.config_definitions import ConfigDefinition
from quorate.metadata.core.coordinator_configs import GROUP_CONFIGS
from quorate.metadata.core.effective_configs import (
    ConfigEntry,
    ConfigSource,
    broker_entries,
    group_entries,
    shown_topic_configs,
    topic_entries,
)
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

Entries = Callable[[ConfigDefinition], Iterable[ConfigEntry]]


def handle(services: Services, context: RequestContext, request: DescribeConfigsRequest) -> HandlerResult:
    return DescribeConfigsResponse(results=[_describe(services, request, resource) for resource in request.resources])


def _describe(
    services: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        definitions, entries = _resource(services, resource)
    except KafkaError as error:
        return DescribeConfigsResult(
            error_code=error.code,
            error_message=error.message,
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    keys = frozenset(resource.configuration_keys or ())
    wanted = (d for d in definitions.values() if not keys or d.name in keys)
    return DescribeConfigsResult(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=list(chain.from_iterable(_config(request, definition, entries) for definition in wanted)),
    )


def _resource(services: Services, resource: DescribeConfigsResource) -> tuple[Mapping[str, ConfigDefinition], Entries]:
    image, view = services.metadata.image, services.view
    kind = parse_resource_type(resource.resource_type)
    if kind is ResourceType.GROUP:
        group_id = GroupId(resource.resource_name)
        return GROUP_CONFIGS, lambda definition: group_entries(image, view, group_id, definition)
    if kind is ResourceType.TOPIC:
        topic = image.topics.get(TopicName(resource.resource_name))
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        shown = {definition.name: definition for definition in shown_topic_configs(topic.configs)}
        return shown, lambda definition: topic_entries(image, view, topic.configs, definition)
    broker = parse_broker_name(resource.resource_name)
    if broker is None:
        return BROKER_CONFIGS, lambda definition: (
            entry
            for entry in broker_entries(image, view, definition)
            if entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        )
    if broker != view.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {view.node_id}, but received {broker}"
        )
    return BROKER_CONFIGS, lambda definition: broker_entries(image, view, definition)


def _config(
    request: DescribeConfigsRequest, definition: ConfigDefinition, entries: Entries
) -> Iterator[DescribeConfigsResourceResult]:
    """The config with the value in force; nothing where no place gives it one."""
    places = list(entries(definition))
    if not places:
        return
    yield DescribeConfigsResourceResult(
        name=definition.name,
        value=places[0].value,
        read_only=definition.read_only,
        config_source=places[0].source,
        synonyms=[DescribeConfigsSynonym(name=place.name, value=place.value, source=place.source) for place in places]
        if request.include_synonyms
        else (),
        config_type=definition.type,
        documentation=definition.documentation if request.include_documentation else None,
    )


API = Api(
    request=DescribeConfigsRequest,
    min_version=1,
    max_version=4,
    handle=handle,
    max_elements=20_000,
    parts=(Parts(of=("resources",), into=("results",), distinct_by=("resource_type", "resource_name"), per_part=5),),
)
