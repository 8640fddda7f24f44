"""The quotas of a node's clients: counting, holding back, and following the metadata."""

import msgspec
import pytest

from quorate.broker.client_limits import ClientQuotas
from quorate.broker.request_context import Origin, RequestContext
from quorate.kernel.ids import Offset
from quorate.metadata.core.commands import Charge
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import QuotaEntity, QuotaEntityPart
from quorate.metadata.core.rate_quotas import MOST_MEASURED, WindowConfig
from quorate.metadata.core.records import ClientQuotaChanged
from quorate.security.principals import user

WINDOW = WindowConfig(sample_count=11, sample_size_ms=1000)
ANY_ID = (QuotaEntityPart("client-id", None),)
APP = (QuotaEntityPart("client-id", "app"),)


class Clients:
    """Requests of clients at one node, and for how long each was muted."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.image = MetadataImage()
        self.quotas = ClientQuotas(WINDOW, self.image, lambda: self.now_s)
        self.muted: list[tuple[str, int]] = []

    def limit(self, entity: QuotaEntity, key: str, value: float | None) -> None:
        change = ClientQuotaChanged(entity=entity, key=key, value=value)
        self.image, delta = self.image.replay([change], Offset(self.image.version + 1))
        self.quotas.metadata_changed(self.image, delta)

    def produce(self, client_id: str, size_bytes: int) -> int:
        return self.quotas.throttle_produce(self._context(client_id, size_bytes))

    def fetch(self, client_id: str, size_bytes: int) -> int:
        return self.quotas.throttle_fetch(self._context(client_id, 100), size_bytes)

    def work(self, seconds: float, *, user: str = "ANONYMOUS") -> int:
        """A request that takes so long."""
        return self.quotas.throttle_request(user, "app", seconds)

    def fetch_max_bytes(self, client_id: str) -> int:
        return self.quotas.fetch_max_bytes(self._context(client_id, 100), 1_000_000)

    def _context(self, client_id: str, size_bytes: int) -> RequestContext:
        return RequestContext(
            api_version=11,
            client_id=client_id,
            origin=Origin(host="127.0.0.1"),
            size_bytes=size_bytes,
            mute=lambda duration_ms: self.muted.append((client_id, duration_ms)),
        )


def test_without_quotas_nobody_is_held_back() -> None:
    clients = Clients()
    assert clients.produce("app", 10**9) == 0
    assert clients.fetch("app", 10**9) == 0
    assert clients.fetch_max_bytes("app") == 1_000_000


def test_a_producer_over_its_quota_is_muted_for_the_time_that_it_is_told() -> None:
    clients = Clients()
    clients.limit(APP, "producer_byte_rate", 500)
    assert clients.produce("app", 5000) == 0
    assert clients.produce("app", 500) == 1000
    assert clients.produce("other", 10**9) == 0
    assert clients.fetch("app", 10**9) == 0
    assert clients.muted == [("app", 1000)]


def test_each_client_has_the_default_quota_for_itself() -> None:
    clients = Clients()
    clients.limit(ANY_ID, "consumer_byte_rate", 500)
    assert clients.fetch("a", 5000) == 0
    assert clients.fetch("b", 5000) == 0
    assert clients.fetch("a", 500) == 1000


def test_no_fetch_is_given_more_than_its_window_at_once() -> None:
    clients = Clients()
    clients.limit(APP, "consumer_byte_rate", 500)
    assert clients.fetch_max_bytes("app") == 5000
    assert clients.fetch_max_bytes("other") == 1_000_000


def test_a_changed_quota_holds_from_the_next_request_on() -> None:
    clients = Clients()
    clients.limit(APP, "producer_byte_rate", 500)
    clients.produce("app", 6000)
    clients.limit(APP, "producer_byte_rate", 5000)
    assert clients.produce("app", 100) == 0
    clients.limit(APP, "producer_byte_rate", None)
    assert clients.produce("app", 10**9) == 0


def test_clients_that_have_gone_are_forgotten() -> None:
    clients = Clients()
    clients.limit(ANY_ID, "producer_byte_rate", 500)
    for number in range(1000):
        clients.produce(f"app-{number}", 100)
        clients.now_s += 1
    assert clients.quotas.measured_count < 200


def test_the_time_of_requests_is_looked_at_only_where_there_is_a_quota_for_it() -> None:
    clients = Clients()
    clients.limit(APP, "producer_byte_rate", 500)
    assert not clients.quotas.request_times.is_counted
    clients.limit(APP, "request_percentage", 10)
    assert clients.quotas.request_times.is_counted
    clients.limit(APP, "request_percentage", None)
    assert not clients.quotas.request_times.is_counted


def test_a_percentage_is_of_one_thread() -> None:
    clients = Clients()
    clients.limit(APP, "request_percentage", 10)
    # Ten seconds' worth are 1 s.
    assert clients.work(1.0) == 0
    assert clients.work(0.05) == 500
    clients.now_s += 0.5
    assert clients.work(0.01) == 100


def test_nobody_is_held_back_for_its_time_for_longer_than_a_sample() -> None:
    clients = Clients()
    clients.limit(APP, "request_percentage", 0.01)
    assert clients.work(100) == 1000
    clients.now_s += 1
    assert clients.work(0.00001) == 100


def test_a_user_shares_its_time_among_its_clients() -> None:
    clients = Clients()
    clients.limit((QuotaEntityPart("user", "alice"),), "request_percentage", 10)
    clients.work(1.0, user="alice")
    assert clients.work(0.1, user="bob") == 0
    assert clients.work(0.1, user="alice") == 1000


@pytest.mark.parametrize(("api_version", "is_strict"), [(5, False), (6, True), (7, True)])
def test_who_is_charged_for_partitions_is_the_principal_and_its_client_id(api_version: int, is_strict: bool) -> None:
    clients = Clients()
    context = RequestContext(
        api_version=api_version, client_id=None, origin=Origin(host="10.0.0.7", principal=user("CN=alice,O=example"))
    )
    assert clients.quotas.mutation_charge(context, strict_since=6) is msgspec.UNSET
    clients.limit((QuotaEntityPart("user", None),), "controller_mutation_rate", 10)
    assert clients.quotas.mutation_charge(context, strict_since=6) == Charge(
        user="CN=alice,O=example", client_id="", is_strict=is_strict
    )


def test_very_many_client_ids_take_no_more_memory_than_there_is_a_bound_for() -> None:
    clients = Clients()
    clients.limit(ANY_ID, "producer_byte_rate", 1)
    for number in range(3 * MOST_MEASURED):
        clients.produce(f"app-{number}", 100)
    assert clients.quotas.measured_count <= MOST_MEASURED


def test_ids_that_are_too_long_to_be_kept_are_held_back_all_the_same() -> None:
    clients = Clients()
    clients.limit(ANY_ID, "producer_byte_rate", 500)
    assert clients.produce("x" * 30_000, 5000) == 0
    assert clients.produce("x" * 30_000, 500) == 1000
    assert clients.produce("x" * 30_001, 500) == 2000
