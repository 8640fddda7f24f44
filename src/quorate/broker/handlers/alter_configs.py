"""AlterConfigs, versions 0 to 2: replaces all configs of a resource. Deprecated in Kafka, still sent by older tools."""

from quorate.broker.api import Api, HandlerResult
from quorate.broker.config_resources import alter_resource
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.metadata.core.commands import ConfigChange, ConfigOperation
from quorate.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(services: Services, context: RequestContext, request: AlterConfigsRequest) -> HandlerResult:
    return _alter_all(services, request)


async def _alter_all(services: Services, request: AlterConfigsRequest) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[await _alter(services, resource, request.validate_only) for resource in request.resources]
    )


async def _alter(
    services: Services, resource: AlterConfigsResource, validate_only: bool
) -> AlterConfigsResourceResponse:
    changes = [
        ConfigChange(key=config.name, operation=ConfigOperation.SET, value=config.value) for config in resource.configs
    ]
    error = await alter_resource(
        services.metadata,
        resource.resource_type,
        resource.resource_name,
        changes,
        replace_all=True,
        validate_only=validate_only,
    )
    return AlterConfigsResourceResponse(
        error_code=error.code if error else 0,
        error_message=error.message if error else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


API = Api(
    request=AlterConfigsRequest,
    min_version=0,
    max_version=2,
    handle=handle,
    parts=(Parts(of=("resources",), into=("responses",)),),
    max_elements=10_000,
)
