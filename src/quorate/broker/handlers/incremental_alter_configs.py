"""IncrementalAlterConfigs, versions 0 to 1: sets, deletes, appends to and subtracts from single configs."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.config_resources import alter_resource
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.commands import ConfigChange, ConfigOperation
from quorate.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


def handle(services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest) -> HandlerResult:
    return _alter_all(services, request)


async def _alter_all(services: Services, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[await _alter(services, resource, request.validate_only) for resource in request.resources]
    )


async def _alter(
    services: Services, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    error: KafkaError | None
    try:
        changes = [_change(config) for config in resource.configs]
    except KafkaError as refused:
        error = refused
    else:
        error = await alter_resource(
            services.metadata,
            resource.resource_type,
            resource.resource_name,
            changes,
            replace_all=False,
            validate_only=validate_only,
        )
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _change(config: AlterableConfig) -> ConfigChange:
    try:
        operation = ConfigOperation(config.config_operation)
    except ValueError:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation} for {config.name}."
        ) from None
    return ConfigChange(key=config.name, operation=operation, value=config.value)


API = Api(
    request=IncrementalAlterConfigsRequest,
    min_version=0,
    max_version=1,
    handle=handle,
    parts=(Parts(of=("resources",), into=("responses",)),),
    max_elements=10_000,
)
