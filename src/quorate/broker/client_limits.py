"""What this node holds its clients to: how fast each may write and read, and how many connections they may have.

**The answer that goes over a quota** is sent at once and says for how long the client is held back; the connection is
not read from meanwhile (KIP-219). A quota is one of this node: a client that talks to several has it at each, as with
Apache Kafka. Gaps: ``request_percentage``, ``controller_mutation_rate`` and ``connection_creation_rate`` are kept but
not enforced.

**Which quota holds** for a client, of all that could: the most specific one, in Apache Kafka's order. Users come before
client ids, names before defaults. A quota for users is shared by all clients of a user; one for client ids by all users
of the id; one for both is that pair's alone.

**What a client has used**: it may use at once what fits its window, and has to wait for more. The window is that of
Apache Kafka's configs, ``quota.window.num`` samples of ``quota.window.size.seconds``, and so are the times to wait for
a client that writes a little at a time. Apache Kafka forgets a sample when it is old enough, whether its time was
waited for or not: who writes 5500 bytes at a time at 500 bytes per second gets 11000 through every 13 seconds there.
Here, what was used is paid off at the limit and in no other way, so that the rate holds for any size.
"""

from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from quorate.broker.request_context import RequestContext
from quorate.metadata.core.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quorate.metadata.core.connection_configs import parse_overrides
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.quota_entities import CLIENT_ID, USER, QuotaEntity, QuotaEntityPart, quota_entity
from quorate.transport.acceptor import ConnectionCaps

_FIRST_SWEEP_AT = 64
#: Who shares a measured rate: a user, a client id or both, with None for what plays no part.
Sharing = tuple[str | None, str | None]


class ByteRateQuota:
    """One kind of quota, and what those that it holds for have used."""

    def __init__(self, window: "WindowConfig") -> None:
        self._window = window
        #: False while there is no such quota: what a request has to look at, and all where none is set.
        self.limits = QuotaTable({}, "")
        #: The limit of each client that was looked up since the quotas last changed.
        self._found: dict[tuple[str, str], Limit | None] = {}
        self._used: dict[Sharing, UsageWindow] = {}
        self._sweep_at = _FIRST_SWEEP_AT

    def __len__(self) -> int:
        return len(self._used)

    def replace(self, limits: "QuotaTable") -> None:
        self.limits = limits
        self._found.clear()
        if not limits:
            self._used.clear()

    def charge(self, user: str, client_id: str, size_bytes: int, now_ms: float) -> int:
        """Count the bytes; returns for how many milliseconds the client is to be held back."""
        limit = self._limit(user, client_id)
        if limit is None:
            return 0
        used = self._used.get(limit.shared_by)
        if used is None:
            self._sweep(now_ms)
            used = self._used[limit.shared_by] = UsageWindow(self._window)
        return used.use(size_bytes, limit.per_second, now_ms)

    def window_bytes(self, user: str, client_id: str) -> int | None:
        """The most that fits the client's whole window, and so the most to give it at once; None without a quota."""
        limit = self._limit(user, client_id)
        return None if limit is None else max(1, int(limit.per_second * self._window.size_ms / 1000))

    def _limit(self, user: str, client_id: str) -> "Limit | None":
        client = (user, client_id)
        if client not in self._found:
            if len(self._found) >= self._sweep_at:
                self._found.clear()
            self._found[client] = self.limits.find(user, client_id)
        return self._found[client]

    def _sweep(self, now_ms: float) -> None:
        """Forget clients that have gone, at a cost that new ones share."""
        if len(self._used) >= self._sweep_at:
            self._used = {who: used for who, used in self._used.items() if not used.is_unused(now_ms)}
            self._sweep_at = max(_FIRST_SWEEP_AT, 2 * len(self._used))


class ClientQuotas:
    def __init__(self, window: "WindowConfig", image: MetadataImage, now: Callable[[], float]) -> None:
        self._now = now
        self._produced = ByteRateQuota(window)
        self._fetched = ByteRateQuota(window)
        self._use(image)

    def throttle_produce(self, context: RequestContext) -> int:
        """Count a produce request and hold its connection back if need be; returns for how many milliseconds."""
        return self._throttle(self._produced, context, context.size_bytes) if self._produced.limits else 0

    def throttle_fetch(self, context: RequestContext, size_bytes: int) -> int:
        """The same for the records that a fetch is answered with."""
        return self._throttle(self._fetched, context, size_bytes) if self._fetched.limits else 0

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        """What a fetch may ask for at most: no more than the window of its client's quota."""
        if not self._fetched.limits:
            return max_bytes
        window_bytes = self._fetched.window_bytes(context.user, context.client_id or "")
        return max_bytes if window_bytes is None else min(max_bytes, window_bytes)

    def _throttle(self, quota: ByteRateQuota, context: RequestContext, size_bytes: int) -> int:
        throttle_ms = quota.charge(context.user, context.client_id or "", size_bytes, self._now() * 1000)
        if throttle_ms > 0:
            context.mute(throttle_ms)
        return throttle_ms

    @property
    def measured_count(self) -> int:
        """Of how many clients it is kept what they have used."""
        return len(self._produced) + len(self._fetched)

    def metadata_changed(self, image: MetadataImage, _: Delta) -> None:
        # The table is only replaced when one of its quotas changes.
        if image.client_quotas is not self._known:
            self._use(image)

    def _use(self, image: MetadataImage) -> None:
        self._known = image.client_quotas
        self._produced.replace(QuotaTable(self._known, PRODUCER_BYTE_RATE))
        self._fetched.replace(QuotaTable(self._known, CONSUMER_BYTE_RATE))


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


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    sample_count: int = 11
    sample_size_ms: int = 1000

    @property
    def size_ms(self) -> int:
        """Of the samples that are complete: all but the one that is being counted in."""
        return max(1, self.sample_count - 1) * self.sample_size_ms


class UsageWindow:
    def __init__(self, config: WindowConfig) -> None:
        self._size_ms = config.size_ms
        #: What is not paid off yet, at the time of the last look.
        self._used = 0.0
        self._seen_at_ms = 0.0
        self._limit_per_second = 0.0

    def is_unused(self, now_ms: float) -> bool:
        """Whether all is paid off: a new object would say the same."""
        return self._unpaid(now_ms) == 0

    def use(self, amount: float, limit_per_second: float, now_ms: float) -> int:
        """Count the amount; returns for how many milliseconds nothing must come until it fits the window again."""
        self._limit_per_second = limit_per_second
        self._used = self._unpaid(now_ms) + amount
        self._seen_at_ms = now_ms
        return max(0, round(self._used * 1000 / limit_per_second - self._size_ms))

    def _unpaid(self, now_ms: float) -> float:
        return max(0.0, self._used - self._limit_per_second * (now_ms - self._seen_at_ms) / 1000)


def connection_caps(image: MetadataImage, view: BrokerView) -> ConnectionCaps:
    def number(name: str) -> int:
        return cast(int, broker_value(image, view, name))

    return ConnectionCaps(
        max_connections=number("max.connections"),
        max_per_address=number("max.connections.per.ip"),
        per_address=parse_overrides(cast(str, broker_value(image, view, "max.connections.per.ip.overrides"))),
        max_per_second=number("max.connection.creation.rate"),
    )
