"""DescribeClientQuotas, versions 0 to 1."""

from collections.abc import Mapping

from quorate.broker.api import Api, HandlerResult
from quorate.broker.request_context import RequestContext
from quorate.broker.services import Services
from quorate.kernel.errors import KafkaError
from quorate.metadata.core.quota_entities import FilterComponent, QuotaEntity, matching_quotas
from quorate.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


def handle(services: Services, context: RequestContext, request: DescribeClientQuotasRequest) -> HandlerResult:
    components = [
        FilterComponent(entity_type=part.entity_type, match_type=part.match_type, name=part.match)
        for part in request.components
    ]
    try:
        matching = matching_quotas(services.metadata.image.client_quotas, components, strict=request.strict)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        error_message=None, entries=[_entry(entity, quotas) for entity, quotas in matching]
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
    )


API = Api(request=DescribeClientQuotasRequest, min_version=0, max_version=1, handle=handle)
