"""What this node holds its clients to: how much each may ask of it, and how many connections they may have.

**The answer that goes over a quota** is sent at once and says for how long the client is held back; the connection is
not read from meanwhile (KIP-219). Where several quotas hold a client back, the longest time counts. The user of a
quota is the name of the principal. A quota is one of this node: a client that talks to several has it at each, as with
Apache Kafka; all but ``controller_mutation_rate``, which whoever leads the quorum counts for all
(``metadata.core.controller``).

**The time of requests** is that of the loop and of the workers (``broker.request_time``). As with Apache Kafka, nobody
is held back for it for longer than one sample, so that a client is heard of before its session ends.
"""

import time
from collections.abc import Callable
from typing import cast

import msgspec

from quorate.broker.request_context import RequestContext
from quorate.broker.request_time import RequestTimes
from quorate.metadata.core.client_quotas import (
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
)
from quorate.metadata.core.commands import Charge
from quorate.metadata.core.connection_configs import parse_overrides
from quorate.metadata.core.effective_configs import BrokerView, broker_value
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.rate_quotas import QuotaTable, RateQuota, WindowConfig
from quorate.transport.acceptor import ConnectionCaps


class ClientQuotas:
    def __init__(
        self,
        window: WindowConfig,
        image: MetadataImage,
        now: Callable[[], float],
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._now = now
        self._produced = RateQuota(window.size_ms)
        self._fetched = RateQuota(window.size_ms)
        self._requests = RateQuota(window.size_ms, window.sample_size_ms)
        self.request_times = RequestTimes(stopwatch)
        self._use(image)

    def throttle_produce(self, context: RequestContext) -> int:
        """Count a produce request and hold its connection back if need be; returns for how many milliseconds."""
        return self._throttle(self._produced, context, context.size_bytes) if self._limits_produced else 0

    def throttle_fetch(self, context: RequestContext, size_bytes: int) -> int:
        """The same for the records that a fetch is answered with."""
        return self._throttle(self._fetched, context, size_bytes) if self._limits_fetched else 0

    def throttle_request(self, user: str, client_id: str | None, taken_s: float) -> int:
        """Count what requests took of this node; returns for how many milliseconds their client is to be held back."""
        return self._requests.charge(user, client_id or "", 100 * taken_s, self._now() * 1000)

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        """What a fetch may ask for at most: no more than the window of its client's quota."""
        if not self._limits_fetched:
            return max_bytes
        window_bytes = self._fetched.window_amount(context.principal.name, context.client_id or "")
        return max_bytes if window_bytes is None else min(max_bytes, window_bytes)

    def mutation_charge(self, context: RequestContext, strict_since: int) -> Charge | msgspec.UnsetType:
        """Who is charged for a change of partitions; nobody where there is no quota for it.

        Versions of the API from ``strict_since`` on are refused what goes over it.
        """
        if not self._limits_mutations:
            return msgspec.UNSET
        return Charge(
            user=context.principal.name,
            client_id=context.client_id or "",
            is_strict=context.api_version >= strict_since,
        )

    def _throttle(self, quota: RateQuota, context: RequestContext, size_bytes: int) -> int:
        throttle_ms = quota.charge(context.principal.name, context.client_id or "", size_bytes, self._now() * 1000)
        if throttle_ms > 0:
            context.mute(throttle_ms)
        return throttle_ms

    @property
    def measured_count(self) -> int:
        """Of how many clients it is kept what they have used."""
        return len(self._produced) + len(self._fetched) + len(self._requests)

    def metadata_changed(self, image: MetadataImage, _: Delta) -> None:
        # The table is only replaced when one of its quotas changes.
        if image.client_quotas is not self._known:
            self._use(image)

    def _use(self, image: MetadataImage) -> None:
        self._known = image.client_quotas
        self._produced.replace(QuotaTable(self._known, PRODUCER_BYTE_RATE))
        self._fetched.replace(QuotaTable(self._known, CONSUMER_BYTE_RATE))
        self._requests.replace(QuotaTable(self._known, REQUEST_PERCENTAGE))
        self._limits_produced, self._limits_fetched = bool(self._produced.limits), bool(self._fetched.limits)
        self.request_times.is_counted = bool(self._requests.limits)
        self._limits_mutations = bool(QuotaTable(self._known, CONTROLLER_MUTATION_RATE))


def connection_caps(image: MetadataImage, view: BrokerView) -> ConnectionCaps:
    def number(name: str) -> int:
        return cast(int, broker_value(image, view, name))

    return ConnectionCaps(
        max_connections=number("max.connections"),
        max_per_address=number("max.connections.per.ip"),
        per_address=parse_overrides(cast(str, broker_value(image, view, "max.connections.per.ip.overrides"))),
        max_per_second=number("max.connection.creation.rate"),
    )
