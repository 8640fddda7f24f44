"""The rates that clients are held to.

- AlterClientQuotas, versions 0 to 1: limits for users, client ids and addresses. Gap: an address must be one; Apache
  Kafka also takes host names.
- DescribeClientQuotas, versions 0 to 1.
"""

from collections.abc import Mapping

from quorate.broker.api import Api
from quorate.broker.request_context import RequestContext
from quorate.broker.request_parts import Parts
from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.commands import AlterClientQuota, QuotaChange
from quorate.metadata.core.quota_entities import (
    FilterComponent,
    QuotaEntity,
    QuotaEntityPart,
    matching_quotas,
    quota_entity,
)
from quorate.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntityData,
    ResponseEntryData,
)
from quorate.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


async def alter_client_quotas(
    services: Services, context: RequestContext, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    commands: dict[QuotaEntity, AlterClientQuota] = {}
    repeated: set[QuotaEntity] = set()
    for entry in request.entries:
        command = _command(entry)
        entity = quota_entity(command.entity)
        if entity in commands:
            repeated.add(entity)
        commands[entity] = command
    wanted = {entity: command for entity, command in commands.items() if entity not in repeated}
    outcomes = (
        await services.metadata.submit(list(wanted.values()), validate_only=request.validate_only) if wanted else []
    )
    errors = {
        entity: outcome for entity, outcome in zip(wanted, outcomes, strict=True) if isinstance(outcome, KafkaError)
    }
    errors |= {
        entity: KafkaError(ErrorCode.INVALID_REQUEST, "The entity is named more than once.") for entity in repeated
    }
    return AlterClientQuotasResponse(entries=[_result(entity, errors.get(entity)) for entity in commands])


def _command(entry: RequestEntryData) -> AlterClientQuota:
    return AlterClientQuota(
        entity=tuple(QuotaEntityPart(part.entity_type, part.entity_name) for part in entry.entity),
        changes=tuple(QuotaChange(key=op.key, value=None if op.remove else op.value) for op in entry.ops),
    )


def _result(entity: QuotaEntity, error: KafkaError | None) -> ResponseEntryData:
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
        error_message=None, entries=[_entry(entity, quotas) for entity, quotas in matching]
    )


def _entry(entity: QuotaEntity, quotas: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=part.type, entity_name=part.name) for part in entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.items()],
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
