"""The quotas of this node's clients: what each has used, and how long it is to be held back.

The answer that goes over a limit is sent at once and says for how long; the connection is not read from meanwhile
(KIP-219). A quota is one of this node: a client that talks to several has it at each, as with Apache Kafka.
Gaps: ``request_percentage``, ``controller_mutation_rate`` and ``connection_creation_rate`` are kept but not enforced.
"""

from collections.abc import Callable

from quorate.broker.quotas.precedence import Limit, QuotaTable, Sharing
from quorate.broker.quotas.usage_window import UsageWindow, WindowConfig
from quorate.broker.request_context import RequestContext
from quorate.metadata.core.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE
from quorate.metadata.core.image import Delta, MetadataImage

_FIRST_SWEEP_AT = 64


class ByteRateQuota:
    """One kind of quota, and what those that it holds for have used."""

    def __init__(self, window: WindowConfig) -> None:
        self._window = window
        #: False while there is no such quota: what a request has to look at, and all where none is set.
        self.limits = QuotaTable({}, "")
        #: The limit of each client that was looked up since the quotas last changed.
        self._found: dict[tuple[str, str], Limit | None] = {}
        self._used: dict[Sharing, UsageWindow] = {}
        self._sweep_at = _FIRST_SWEEP_AT

    def __len__(self) -> int:
        return len(self._used)

    def replace(self, limits: QuotaTable) -> None:
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

    def _limit(self, user: str, client_id: str) -> Limit | None:
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
    def __init__(self, window: WindowConfig, image: MetadataImage, now: Callable[[], float]) -> None:
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
