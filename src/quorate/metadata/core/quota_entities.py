"""The entities that client quotas are for, and the filters of a query for them.

An entity is a user, a client id, both together, or an address; by name or as the default. Each component of a filter
says what one type of an entity must be.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = frozenset({USER, CLIENT_ID, IP})


class QuotaEntityPart(msgspec.Struct, frozen=True):
    """One side of an entity, in the words of Kafka's protocol."""

    type: str
    #: None for the default, which holds where no name does.
    name: str | None


#: Parts in the order of their types, so that one entity is one key.
QuotaEntity = tuple[QuotaEntityPart, ...]
ClientQuotas = Mapping[QuotaEntity, Mapping[str, float]]


def quota_entity(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    return tuple(sorted(parts, key=lambda part: part.type))


class MatchType(IntEnum):
    """Kafka's codes, as DescribeClientQuotas has them."""

    EXACT = 0
    DEFAULT = 1
    #: Any name, the default included.
    ANY = 2


class FilterComponent(msgspec.Struct, frozen=True, kw_only=True):
    entity_type: str
    match_type: int
    name: str | None = None


def matching_quotas(
    quotas: ClientQuotas, components: Sequence[FilterComponent], *, strict: bool
) -> Iterator[tuple[QuotaEntity, Mapping[str, float]]]:
    """The quotas of all entities that fit every component; with ``strict``, of those that have no other part."""
    _check(components)
    return (
        (entity, values)
        for entity, values in quotas.items()
        if (not strict or len(entity) == len(components)) and all(_fits(entity, component) for component in components)
    )


def _fits(entity: QuotaEntity, component: FilterComponent) -> bool:
    return any(
        part.type == component.entity_type and (component.match_type == MatchType.ANY or part.name == component.name)
        for part in entity
    )


def _check(components: Iterable[FilterComponent]) -> None:
    types: set[str] = set()
    for component in components:
        if not component.entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if component.entity_type in types:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"Entity type {component.entity_type} cannot appear more than once in the filter.",
            )
        if component.entity_type not in ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {component.entity_type}")
        types.add(component.entity_type)
        _check_match(component)
    if IP in types and len(types) > 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A filter for addresses cannot be one for users or client ids too.")


def _check_match(component: FilterComponent) -> None:
    if component.match_type not in list(MatchType):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
    if (component.match_type == MatchType.EXACT) != (component.name is not None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A name belongs to an exact match, and to no other.")
