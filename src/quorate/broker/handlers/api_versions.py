"""ApiVersions, versions 0 to 4: what this node serves, derived from what the handlers declare."""

from collections.abc import Iterable, Sequence
from functools import partial
from operator import attrgetter

from quorate.broker.api import Api
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
_MIN_VERSION = 0
_MAX_VERSION = 4


def listing(others: Iterable[Api]) -> Api:
    """The API that tells the versions of the others, and its own."""
    own = ApiVersion(api_key=ApiVersionsRequest.API_KEY, min_version=_MIN_VERSION, max_version=_MAX_VERSION)
    served = _sorted((own, *(_versions(api) for api in others)))
    return Api(
        request=ApiVersionsRequest,
        min_version=_MIN_VERSION,
        max_version=_MAX_VERSION,
        handle=partial(api_versions, served),
    )


def api_versions(
    served: Sequence[ApiVersion], services: Services, context: RequestContext, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    if context.api_version >= 3 and not (request.client_software_name and request.client_software_version):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=served,
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


def unsupported_version_response(served: Iterable[Api]) -> ApiVersionsResponse:
    """For a request of a version that is not served: the client picks one from the list and asks again."""
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=_sorted(map(_versions, served)))


def _versions(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.request.API_KEY, min_version=api.min_version, max_version=api.max_version)


def _sorted(versions: Iterable[ApiVersion]) -> tuple[ApiVersion, ...]:
    return tuple(sorted(versions, key=attrgetter("api_key")))
