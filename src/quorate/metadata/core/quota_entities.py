"""Whom a client quota is for: users, client ids, both together, or addresses; by name or as the default."""

from collections.abc import Iterable
from typing import Final

import msgspec

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


def quota_entity(parts: Iterable[QuotaEntityPart]) -> QuotaEntity:
    return tuple(sorted(parts, key=lambda part: part.type))
