"""``connection_creation_rate`` (KIP-612): how many connections each address may make in a second.

Entities are addresses and host names. A name is looked up when its quota is set and when the node starts, as in Apache
Kafka; each of its addresses has the quota. One that cannot be looked up is a line in the log. What is kept of addresses
has a bound: where there are very many, those that came first are forgotten first.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor

from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.client_quotas import CONNECTION_CREATION_RATE
from quorate.metadata.core.connection_configs import is_address, normal_address
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.quota_entities import IP
from quorate.metadata.core.rate_quotas import UsageTable

logger = logging.getLogger(__name__)


LookUp = Callable[[str], Iterable[str]]


def look_up(host: str) -> list[str]:
    """The addresses of a host; OSError or UnicodeError where there is none. Takes as long as the resolver does."""
    found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)
    return list(dict.fromkeys(normal_address(str(place[0])) for *_, place in found))


class HostLookUp:
    """One host at a time: a resolver that does not answer keeps one worker, and not all of them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor, look_up: LookUp = look_up) -> None:
        self._loop = loop
        self._executor = executor
        self._look_up = look_up
        self._turn = asyncio.Lock()
        self._tasks = TaskScope(loop, logged_failures(logger, "look-up of a host"))

    async def find(self, host: str) -> tuple[str, ...]:
        """Its addresses; none where it has none. Who gives up waiting does not make room for the next one."""
        return await asyncio.shield(self._tasks.spawn(self._find(host)))

    def stop(self) -> None:
        self._tasks.cancel_all()

    async def _find(self, host: str) -> tuple[str, ...]:
        async with self._turn:
            try:
                return tuple(await self._loop.run_in_executor(self._executor, self._look_up, host))
            except (OSError, UnicodeError):
                return ()


class AddressRates:
    def __init__(self, window_ms: float) -> None:
        self._rates: Mapping[str, float] = {}
        self._default: float | None = None
        self._used: UsageTable[str] = UsageTable(window_ms)

    @property
    def measured_count(self) -> int:
        """Of how many addresses it is kept what they have used."""
        return len(self._used)

    def use(self, rates: Mapping[str, float], default: float | None) -> None:
        """Those of addresses, as ``normal_address`` writes them, and that of all others."""
        self._rates, self._default = rates, default
        if not rates and default is None:
            self._used.clear()

    def delay_s(self, address: str, now_s: float, at_most_s: float) -> float | None:
        rate = self._rates.get(address, self._default)
        if rate is None:
            return 0.0
        used = self._used.of(address, now_s * 1000)
        delay_s = used.wait_ms_after(1, rate, now_s * 1000) / 1000
        if delay_s > at_most_s:
            return None
        used.use(1, rate, now_s * 1000)
        return delay_s


class AddressQuotas:
    """Follows the metadata, and looks up the hosts that it names."""

    def __init__(
        self,
        window_ms: float,
        image: MetadataImage,
        hosts: HostLookUp,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.rates = AddressRates(window_ms)
        self._hosts = hosts
        self._known = image.client_quotas
        #: Of hosts that are in a quota; empty for those that were not found.
        self._addresses: dict[str, tuple[str, ...]] = {}
        self._tasks = TaskScope(loop, logged_failures(logger, "look-up of a host in a quota"))
        self._follow()

    def metadata_changed(self, image: MetadataImage, _: Delta) -> None:
        if image.client_quotas is not self._known:
            self._known = image.client_quotas
            self._follow()

    def stop(self) -> None:
        self._tasks.cancel_all()
        self._hosts.stop()

    def _follow(self) -> None:
        quotas = self._named()
        hosts = [name for name in quotas if name is not None and not is_address(name)]
        self._addresses = {host: self._addresses[host] for host in hosts if host in self._addresses}
        for host in hosts:
            if host not in self._addresses:
                self._addresses[host] = ()
                self._tasks.spawn(self._find(host))
        self._use(quotas)

    async def _find(self, host: str) -> None:
        found = await self._hosts.find(host)
        if not found:
            logger.warning("quota without effect entity=ip host=%r reason='it has no address'", host)
        if host in self._addresses:
            self._addresses[host] = found
            self._use(self._named())

    def _named(self) -> dict[str | None, float]:
        return {
            entity[0].name: values[CONNECTION_CREATION_RATE]
            for entity, values in self._known.items()
            if entity[0].type == IP and CONNECTION_CREATION_RATE in values
        }

    def _use(self, quotas: Mapping[str | None, float]) -> None:
        """An address that is named itself has that quota, whatever names it has besides."""
        rates = {address: quotas[host] for host, found in self._addresses.items() for address in found}
        rates |= {normal_address(name): rate for name, rate in quotas.items() if name and is_address(name)}
        self.rates.use(rates, quotas.get(None))
