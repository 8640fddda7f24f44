"""Deciding changes of client quotas: the quotas that exist, their entities and their values."""

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from math import isfinite
from typing import Final

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.core.commands import AlterClientQuota, QuotaChange
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import ENTITY_TYPES, IP, QuotaEntityPart, quota_entity
from quorate.metadata.core.records import ClientQuotaChanged

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

#: The quotas that an entity can have, and whether their values are whole numbers.
_CLIENT_KEYS: Final[Mapping[str, bool]] = {
    PRODUCER_BYTE_RATE: True,
    CONSUMER_BYTE_RATE: True,
    "request_percentage": False,
    "controller_mutation_rate": False,
}
_IP_KEYS: Final[Mapping[str, bool]] = {"connection_creation_rate": True}


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


def _allowed_keys(parts: Iterable[QuotaEntityPart]) -> Mapping[str, bool]:
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
    _check_address(names[IP])
    return _IP_KEYS


def _check_address(name: str | None) -> None:
    if name is None:
        return
    try:
        ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP address.") from None


def _new_values(changes: Iterable[QuotaChange], keys: Mapping[str, bool]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for change in changes:
        if change.key in values:
            raise _invalid(f"Duplicate quota key {change.key}")
        if change.value is not None:
            _check_value(change.key, change.value, keys)
        values[change.key] = change.value
    return values


def _check_value(key: str, value: float, keys: Mapping[str, bool]) -> None:
    if key not in keys:
        raise _invalid(f"Invalid configuration key {key}")
    if not isfinite(value) or value <= 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    if keys[key] and not value.is_integer():
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
