"""ApiVersions, versions 0 to 4: what this node serves, derived from the handlers themselves."""

from functools import cache

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

#: What every node has switched on, at its newest version: the consumer group protocol (KIP-848), and an epoch for every
#: transaction of a producer (KIP-890).
_FEATURES = {"group.version": 1, "transaction.version": 2}
_FEATURES_MAY_BE_OFF_FROM = 4


def handle(services: Services, context: RequestContext, request: ApiVersionsRequest) -> HandlerResult:
    if context.api_version >= 3 and not (request.client_software_name and request.client_software_version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=_served(),
        supported_features=_supported_features(context.api_version),
        finalized_features_epoch=services.metadata.image.version,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in _FEATURES.items()
        ],
    )


def _supported_features(api_version: int) -> list[SupportedFeatureKey]:
    # Before version 4 clients take a feature that may be off (version 0) for an error.
    off = 0 if api_version >= _FEATURES_MAY_BE_OFF_FROM else 1
    return [SupportedFeatureKey(name=name, min_version=off, max_version=level) for name, level in _FEATURES.items()]


def unsupported_version_response() -> ApiVersionsResponse:
    """For a request of a version that is not served: the client picks one from the list and asks again."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_served())


@cache
def _served() -> tuple[ApiVersion, ...]:
    # Imported late: the table of handlers holds this one.
    from quorate.broker.handlers import APIS

    return tuple(
        ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
        for key, api in sorted(APIS.items())
    )


API = Api(request=ApiVersionsRequest, min_version=0, max_version=4, handle=handle)
