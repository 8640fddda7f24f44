"""What is set while a cluster runs: configs of topics, brokers and groups, and the rates that clients are held to.

- AlterConfigs, versions 0 to 2: replaces all configs of a resource. Deprecated in Kafka, still sent by older tools.
- IncrementalAlterConfigs, versions 0 to 1: sets, deletes, appends to and subtracts from single configs.
- DescribeConfigs, versions 1 to 4.
- AlterClientQuotas, versions 0 to 1: limits for users, client ids and addresses. A host name in place of an address is
  looked up first.
- DescribeClientQuotas, versions 0 to 1.

Gap: loggers and client metrics have no configs here.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import TypeVar

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, NodeId, TopicName
from quorate.kernel.topic_names import check_topic_name
from quorate.metadata.core.broker_configs import broker_definitions
from quorate.metadata.core.client_quotas import host_of, not_a_host
from quorate.metadata.core.commands import (
    AlterBrokerConfigs,
    AlterClientQuota,
    AlterGroupConfigs,
    AlterTopicConfigs,
    ConfigChange,
    ConfigOperation,
    QuotaChange,
)
from quorate.metadata.core.config_definitions import ConfigDefinition
from quorate.metadata.core.coordinator_configs import GROUP_CONFIGS
from quorate.metadata.core.effective_configs import (
    ConfigEntry,
    broker_entries,
    group_entries,
    shown_topic_configs,
    topic_entries,
)
from quorate.metadata.core.quota_entities import (
    FilterComponent,
    QuotaEntity,
    QuotaEntityPart,
    matching_quotas,
    quota_entity,
)
from quorate.protocol.codes import ConfigSource, ResourceType
from quorate.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from quorate.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from quorate.protocol.messages.alter_configs import AlterConfigsResource as ReplacedResource
from quorate.protocol.messages.alter_configs import AlterConfigsResourceResponse as ReplacedResponse
from quorate.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from quorate.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from quorate.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_SET = ConfigOperation.SET
#: Looked up for one request of quotas, and for how long.
_MAX_HOSTS = 20
_LOOK_UP_S = 10.0

AlteredResource = ReplacedResource | AlterConfigsResource
AlteredT = TypeVar("AlteredT", ReplacedResponse, AlterConfigsResourceResponse)
Entries = Callable[[ConfigDefinition], Iterable[ConfigEntry]]


async def alter_configs(
    services: Services, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    answers = []
    for resource in request.resources:
        changes = (ConfigChange(key=each.name, operation=_SET, value=each.value) for each in resource.configs)
        error = await _alter(services, resource, changes, replace_all=True, validate_only=request.validate_only)
        answers.append(_altered(ReplacedResponse, resource, error))
    return AlterConfigsResponse(responses=answers)


async def incremental_alter_configs(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    answers = []
    for resource in request.resources:
        changes = (_change(config) for config in resource.configs)
        error = await _alter(services, resource, changes, replace_all=False, validate_only=request.validate_only)
        answers.append(_altered(AlterConfigsResourceResponse, resource, error))
    return IncrementalAlterConfigsResponse(responses=answers)


def _change(config: AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation} for {config.name}."
        ) from None
    return ConfigChange(key=config.name, operation=operation, value=config.value)


async def _alter(
    services: Services,
    resource: AlteredResource,
    changes: Iterable[ConfigChange],
    *,
    replace_all: bool,
    validate_only: bool,
) -> KafkaError | None:
    """Change the configs of a resource; returns why not."""
    try:
        command = _command(resource, tuple(changes), replace_all=replace_all)
    except KafkaError as error:
        return error
    (outcome,) = await services.metadata.submit([command], validate_only=validate_only)
    return outcome if isinstance(outcome, KafkaError) else None


def _command(
    resource: AlteredResource, changes: tuple[ConfigChange, ...], *, replace_all: bool
) -> AlterTopicConfigs | AlterBrokerConfigs | AlterGroupConfigs:
    kind, name = _resource_type(resource.resource_type), resource.resource_name
    if kind is ResourceType.GROUP:
        return AlterGroupConfigs(group_id=GroupId(name), changes=changes, replace_all=replace_all)
    if kind is ResourceType.TOPIC:
        check_topic_name(name)
        return AlterTopicConfigs(name=TopicName(name), changes=changes, replace_all=replace_all)
    return AlterBrokerConfigs(node_id=_broker(name), changes=changes, replace_all=replace_all)


def _altered(kind: type[AlteredT], resource: AlteredResource, error: KafkaError | None) -> AlteredT:
    return kind(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def describe_configs(
    services: Services, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
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
    kind = _resource_type(resource.resource_type)
    if kind is ResourceType.GROUP:
        group_id = GroupId(resource.resource_name)
        return GROUP_CONFIGS, lambda definition: group_entries(image, view, group_id, definition)
    if kind is ResourceType.TOPIC:
        topic = image.topics.get(TopicName(resource.resource_name))
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        shown = {definition.name: definition for definition in shown_topic_configs(topic.configs)}
        return shown, lambda definition: topic_entries(image, view, topic.configs, definition)
    broker = _broker(resource.resource_name)
    names = (name for configs in (view.static_configs, *image.broker_configs.values()) for name in configs)
    definitions = broker_definitions(names)
    if broker is None:
        return definitions, lambda definition: (
            entry
            for entry in broker_entries(image, view, definition)
            if entry.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
        )
    if broker != view.node_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unexpected broker id, expected {view.node_id}, but received {broker}"
        )
    return definitions, lambda definition: broker_entries(image, view, definition)


def _config(
    request: DescribeConfigsRequest, definition: ConfigDefinition, entries: Entries
) -> Iterator[DescribeConfigsResourceResult]:
    """The config with the value in force; nothing where no place gives it one."""
    places = list(entries(definition))
    if not places:
        return
    yield DescribeConfigsResourceResult(
        name=definition.name,
        value=None if definition.is_sensitive else places[0].value,
        read_only=definition.read_only,
        is_sensitive=definition.is_sensitive,
        config_source=places[0].source,
        synonyms=[_synonym(definition, place) for place in places] if request.include_synonyms else (),
        config_type=definition.type,
        documentation=definition.documentation if request.include_documentation else None,
    )


def _synonym(definition: ConfigDefinition, place: ConfigEntry) -> DescribeConfigsSynonym:
    return DescribeConfigsSynonym(
        name=place.name, value=None if definition.is_sensitive else place.value, source=place.source
    )


def _resource_type(code: int) -> ResourceType:
    try:
        return ResourceType(code)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Configs of resource type {code} are not supported.") from None


def _broker(name: str) -> NodeId | None:
    """A broker's id; None for the empty name, which means all brokers."""
    if name == "":
        return None
    if not name.isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    return NodeId(int(name))


async def alter_client_quotas(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    commands: dict[QuotaEntity, AlterClientQuota] = {}
    repeated: set[QuotaEntity] = set()
    for entry in request.entries:
        command = _quota_command(entry)
        entity = quota_entity(command.entity)
        if entity in commands:
            repeated.add(entity)
        commands[entity] = command
    not_found = await _hosts_without_address(services, commands)
    wanted = {each: command for each, command in commands.items() if each not in repeated and each not in not_found}
    outcomes = (
        await services.metadata.submit(list(wanted.values()), validate_only=request.validate_only) if wanted else []
    )
    errors = {
        entity: outcome for entity, outcome in zip(wanted, outcomes, strict=True) if isinstance(outcome, KafkaError)
    }
    errors |= not_found
    errors |= {
        entity: KafkaError(ErrorCode.INVALID_REQUEST, "The entity is named more than once.") for entity in repeated
    }
    return AlterClientQuotasResponse(entries=[_quota_result(entity, errors.get(entity)) for entity in commands])


async def _hosts_without_address(services: Services, entities: Iterable[QuotaEntity]) -> dict[QuotaEntity, KafkaError]:
    """Those of the entities that are hosts which nobody finds. One that has a quota can lose it in any case."""
    known = services.metadata.image.client_quotas
    hosts = {each: host for each in entities if (host := host_of(each)) is not None and each not in known}
    if len(hosts) > _MAX_HOSTS:
        error = KafkaError(ErrorCode.INVALID_REQUEST, f"A request can name {_MAX_HOSTS} hosts at most.")
        return dict.fromkeys(hosts, error)
    unsure = dict(hosts)
    errors: dict[QuotaEntity, KafkaError] = {}
    with suppress(TimeoutError):
        async with asyncio.timeout(_LOOK_UP_S):
            for entity, host in hosts.items():
                if not await services.hosts.find(host):
                    errors[entity] = not_a_host(host)
                del unsure[entity]
    return errors | {
        entity: KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{host} could not be looked up in time.")
        for entity, host in unsure.items()
    }


def _quota_command(entry: RequestEntryData) -> AlterClientQuota:
    return AlterClientQuota(
        entity=tuple(QuotaEntityPart(part.entity_type, part.entity_name) for part in entry.entity),
        changes=tuple(QuotaChange(key=op.key, value=None if op.remove else op.value) for op in entry.ops),
    )


def _quota_result(entity: QuotaEntity, error: KafkaError | None) -> ResponseEntryData:
    return ResponseEntryData(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        entity=[ResponseEntityData(entity_type=part.type, entity_name=part.name) for part in entity],
    )


def describe_client_quotas(
    services: Services, context: RequestContext, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    components = [
        FilterComponent(entity_type=part.entity_type, match_type=part.match_type, name=part.match)
        for part in request.components
    ]
    try:
        matching = matching_quotas(services.metadata.image.client_quotas, components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_message=None, entries=[_quota_entry(entity, quotas) for entity, quotas in matching]
    )


def _quota_entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )


ALTER_CONFIGS = Api(
    request=AlterConfigsRequest,
    min_version=0,
    max_version=2,
    handle=alter_configs,
    parts=(Parts(of=("resources",), into=("responses",)),),
    max_elements=10_000,
)
INCREMENTAL_ALTER_CONFIGS = Api(
    request=IncrementalAlterConfigsRequest,
    min_version=0,
    max_version=1,
    handle=incremental_alter_configs,
    parts=(Parts(of=("resources",), into=("responses",)),),
    max_elements=10_000,
)
DESCRIBE_CONFIGS = Api(
    request=DescribeConfigsRequest,
    min_version=1,
    max_version=4,
    handle=describe_configs,
    max_elements=20_000,
    parts=(Parts(of=("resources",), into=("results",), distinct_by=("resource_type", "resource_name"), per_part=5),),
)
ALTER_CLIENT_QUOTAS = Api(
    request=AlterClientQuotasRequest,
    min_version=0,
    max_version=1,
    handle=alter_client_quotas,
    parts=(Parts(of=("entries",), into=("entries",)),),
)
DESCRIBE_CLIENT_QUOTAS = Api(
    request=DescribeClientQuotasRequest, min_version=0, max_version=1, handle=describe_client_quotas
)
