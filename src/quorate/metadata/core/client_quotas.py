"""Deciding changes of client quotas: the quotas that exist, their entities and their values."""

import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Final

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.commands import AlterClientQuota, QuotaChange
from quorate.metadata.core.config_definitions import INT32_MAX, INT64_MAX
from quorate.metadata.core.connection_configs import is_address
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import ENTITY_TYPES, IP, QuotaEntity, QuotaEntityPart, quota_entity
from quorate.metadata.core.records import ClientQuotaChanged

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

#: The quotas that an entity can have, and the largest value of those that are whole numbers.
_CLIENT_KEYS: Final[Mapping[str, int | None]] = {
    PRODUCER_BYTE_RATE: INT64_MAX,
    CONSUMER_BYTE_RATE: INT64_MAX,
    REQUEST_PERCENTAGE: None,
    CONTROLLER_MUTATION_RATE: None,
}
_IP_KEYS: Final[Mapping[str, int | None]] = {CONNECTION_CREATION_RATE: INT32_MAX}
#: A host's name, which has a letter in it: what else looks like an address is a mistake in one.
_HOST: Final = re.compile(r"(?=.{1,253}$)(?=.*[A-Za-z])[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9.])?")


def decide_client_quota(image: MetadataImage, command: AlterClientQuota) -> tuple[ClientQuotaChanged, ...]:
    keys = _allowed_keys(command.entity)
    values = _new_values(command.changes, keys)
    entity = quota_entity(command.entity)
    current = image.client_quotas.get(entity, {})
    return tuple(
        ClientQuotaChanged(entity=entity, key=key, value=value)
        for key, value in values.items()
        if current.get(key) != value
    )


def _allowed_keys(parts: Iterable[QuotaEntityPart]) -> Mapping[str, int | None]:
    """The quotas that fit the entity; INVALID_REQUEST for one that makes no sense."""
    names: dict[str, str | None] = {}
    for part in parts:
        if part.type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {part.type}")
        if part.type in names:
            raise _invalid(f"The entity type {part.type} is named twice.")
        if part.name == "":
            raise _invalid(f"Empty {part.type} not supported")
        names[part.type] = part.name
    if not names:
        raise _invalid("Invalid empty client quota entity")
    if IP not in names:
        return _CLIENT_KEYS
    if len(names) > 1:
        raise _invalid("A quota for an address cannot be one for a user or a client id too.")
    _check_host(names[IP])
    return _IP_KEYS


def _check_host(name: str | None) -> None:
    """Whether the name can be looked up is for the node to find out that was asked."""
    if name is not None and not is_address(name) and _HOST.fullmatch(name) is None:
        raise not_a_host(name)


def host_of(entity: QuotaEntity) -> str | None:
    """The name that has to be looked up; None where there is none."""
    name = entity[0].name if len(entity) == 1 and entity[0].type == IP else None
    return name if name is not None and not is_address(name) and _HOST.fullmatch(name) else None


def not_a_host(name: str) -> KafkaError:
    return _invalid(f"{name} is not a valid IP or resolvable host.")


def _new_values(changes: Iterable[QuotaChange], keys: Mapping[str, int | None]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for change in changes:
        if change.key in values:
            raise _invalid(f"Duplicate quota key {change.key}")
        if change.value is not None:
            _check_value(change.key, change.value, keys)
        values[change.key] = change.value
    return values


def _check_value(key: str, value: float, keys: Mapping[str, int | None]) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not isfinite(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = keys[key]
    if largest is None:
        return
    if value > largest:
        raise _invalid(f"Quota {key} must be at most {largest}")
    if not value.is_integer():
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
