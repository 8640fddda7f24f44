"""Which of several quotas holds for a client, and with whom it shares it."""

import pytest

from quorate.metadata.core.quota_entities import QuotaEntity, QuotaEntityPart, quota_entity
from quorate.metadata.core.rate_quotas import QuotaTable

RATE = "consumer_byte_rate"


def entity(*, user: str | None = "-", client_id: str | None = "-") -> QuotaEntity:
    parts = (("user", user), ("client-id", client_id))
    return quota_entity(QuotaEntityPart(kind, name) for kind, name in parts if name != "-")


#: The most specific first, as Apache Kafka documents it.
IN_ORDER = [
    (entity(user="alice", client_id="app"), ("alice", "app")),
    (entity(user="alice", client_id=None), ("alice", "app")),
    (entity(user="alice"), ("alice", None)),
    (entity(user=None, client_id="app"), ("alice", "app")),
    (entity(user=None, client_id=None), ("alice", "app")),
    (entity(user=None), ("alice", None)),
    (entity(client_id="app"), (None, "app")),
    (entity(client_id=None), (None, "app")),
]


@pytest.mark.parametrize("position", range(len(IN_ORDER)))
def test_the_most_specific_quota_that_there_is_holds(position: int) -> None:
    values = {each: {RATE: float(rank + 1)} for rank, (each, _) in enumerate(IN_ORDER) if rank >= position}
    limit = QuotaTable(values, RATE).find("alice", "app")
    assert limit is not None
    assert limit.per_second == position + 1
    assert limit.shared_by == IN_ORDER[position][1]


def test_quotas_of_others_do_not_hold() -> None:
    table = QuotaTable({entity(user="bob"): {RATE: 1.0}, entity(client_id="other"): {RATE: 1.0}}, RATE)
    assert table
    assert table.find("alice", "app") is None


def test_a_table_is_false_where_only_another_quota_is_set() -> None:
    assert not QuotaTable({entity(user=None): {"producer_byte_rate": 1.0}}, RATE)
