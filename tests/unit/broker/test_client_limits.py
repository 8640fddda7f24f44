"""The quotas of a node's clients: counting, holding back, and following the metadata."""

from quorate.broker.client_limits import ClientQuotas, WindowConfig
from quorate.broker.request_context import RequestContext
from quorate.kernel.ids import Offset
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.core.quota_entities import QuotaEntity, QuotaEntityPart
from quorate.metadata.core.records import ClientQuotaChanged

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

    def fetch_max_bytes(self, client_id: str) -> int:
        return self.quotas.fetch_max_bytes(self._context(client_id, 100), 1_000_000)

    def _context(self, client_id: str, size_bytes: int) -> RequestContext:
        return RequestContext(
            api_version=11,
            client_id=client_id,
            client_host="127.0.0.1",
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
