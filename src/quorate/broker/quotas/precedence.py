"""Which quota holds for a client, of all that could: the most specific one, in Apache Kafka's order.

Users come before client ids, names before defaults. A quota for users is shared by all clients of a user; one for
client ids by all users of the id; one for both is that pair's alone.
"""

from collections.abc import Mapping

import msgspec

from quorate.metadata.core.quota_entities import CLIENT_ID, USER, QuotaEntity, QuotaEntityPart, quota_entity

#: Who shares a measured rate: a user, a client id or both, with None for what plays no part.
Sharing = tuple[str | None, str | None]


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    per_second: float
    shared_by: Sharing


class QuotaTable:
    """The values of one quota, for finding what holds for a client. False where nobody has that quota."""

    def __init__(self, quotas: Mapping[QuotaEntity, Mapping[str, float]], key: str) -> None:
        self._values = {entity: values[key] for entity, values in quotas.items() if key in values}

    def __bool__(self) -> bool:
        return bool(self._values)

    def find(self, user: str, client_id: str) -> Limit | None:
        for entity, shared_by in _by_precedence(user, client_id):
            value = self._values.get(entity)
            if value is not None:
                return Limit(per_second=value, shared_by=shared_by)
        return None


def _by_precedence(user: str, client_id: str) -> list[tuple[QuotaEntity, Sharing]]:
    users = QuotaEntityPart(USER, user), QuotaEntityPart(USER, None)
    ids = QuotaEntityPart(CLIENT_ID, client_id), QuotaEntityPart(CLIENT_ID, None)
    candidates: list[tuple[QuotaEntity, Sharing]] = []
    for user_part in users:
        candidates.extend((quota_entity((user_part, id_part)), (user, client_id)) for id_part in ids)
        candidates.append(((user_part,), (user, None)))
    candidates.extend(((id_part,), (None, client_id)) for id_part in ids)
    return candidates
