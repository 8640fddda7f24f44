"""The network between the hosts: who listens where, which ways are open, and what gets in the way.

As TCP does it, bytes of a connection are never lost, doubled or swapped: a bad network shows as delay, as silence, or
as the end of the connection. Order is lost between connections only.
"""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable, Iterator
from random import Random

from tests.simulation.world.link import Link, LinkSettings
from tests.simulation.world.loop import SimulatedLoop
from tests.simulation.world.scheduler import Scheduler
from tests.simulation.world.stream import Stream
from tests.simulation.world.trace import Trace
from tests.simulation.world.transport import SimulatedTransport

ProtocolFactory = Callable[[], asyncio.BaseProtocol]

_FIRST_EPHEMERAL_PORT = 32768
_THIS_HOST = ("localhost", "127.0.0.1", "::1")
_ANY_ADDRESS = (None, "", "0.0.0.0", "::")
_LOOPBACK = LinkSettings(delay_ms=0.01, jitter_ms=0.02)


class Network:
    def __init__(self, scheduler: Scheduler, random: Random, trace: Trace, settings: LinkSettings) -> None:
        self._scheduler = scheduler
        self._random = random
        self._trace = trace
        #: Of links that were not given their own.
        self._settings = settings
        self._addresses: dict[str, str] = {}
        self._has_power: dict[str, bool] = {}
        self._links: dict[tuple[str, str], Link] = {}
        self._listeners: dict[tuple[str, int], SimulatedServer] = {}
        self._next_port: dict[str, int] = {}

    def add_host(self, name: str, address: str) -> None:
        assert address not in self._has_power, f"{address} is there already"
        self._addresses[name] = self._addresses[address] = address
        self._has_power[address] = True

    # Faults. Hosts are named by name or address.

    def link(self, source: str, target: str) -> Link:
        """The way from one host to another; assign its ``settings`` to make it slow or lossy."""
        key = (self._addresses[source], self._addresses[target])
        link = self._links.get(key)
        if link is None:
            settings = _LOOPBACK if key[0] == key[1] else self._settings
            link = self._links[key] = Link(self._scheduler, self._random, settings)
            link.leads_somewhere = self._has_power[key[1]]
        return link

    def links(self) -> Iterator[tuple[str, str, Link]]:
        """Every way that was used, from one address to another."""
        for (source, target), link in self._links.items():
            yield source, target, link

    def block(self, source: str, target: str) -> None:
        """One way only: nothing from ``source`` reaches ``target``."""
        self._trace.note(f"block {source} -> {target}")
        self.link(source, target).change(blocked=True)

    def unblock(self, source: str, target: str) -> None:
        self._trace.note(f"unblock {source} -> {target}")
        self.link(source, target).change(blocked=False)

    def partition(self, some: Iterable[str], others: Iterable[str]) -> None:
        """Nothing passes between the two groups, either way."""
        others = list(others)
        for one in some:
            for other in others:
                self.block(one, other)
                self.block(other, one)

    def isolate(self, name: str) -> None:
        """Cut one host off from all others."""
        address = self._addresses[name]
        self.partition([name], [other for other in self._has_power if other != address])

    def heal(self) -> None:
        """Open every way that was blocked."""
        self._trace.note("heal")
        for link in self._links.values():
            if link.is_blocked:
                link.change(blocked=False)

    def use(self, settings: LinkSettings) -> None:
        """Settings for every link between hosts, now and later."""
        self._settings = settings
        for (source, target), link in self._links.items():
            if source != target:
                link.settings = settings

    # For hosts.

    def power_changed(self, address: str, has_power: bool) -> None:
        self._has_power[address] = has_power
        for (_, target), link in self._links.items():
            if target == address:
                link.change(leads_somewhere=has_power)

    def stop_listening(self, loop: SimulatedLoop) -> None:
        self._listeners = {place: server for place, server in self._listeners.items() if server.get_loop() is not loop}

    # For loops.

    def resolve(self, asking: str, host: str) -> str:
        if host in _THIS_HOST:
            return asking
        address = self._addresses.get(host)
        if address is None:
            raise socket.gaierror(socket.EAI_NONAME, f"Name or service not known: {host}")
        return address

    def listen(self, loop: SimulatedLoop, factory: ProtocolFactory, host: str | None, port: int) -> "SimulatedServer":
        address = loop.owner.address
        if host not in _ANY_ADDRESS and self.resolve(address, host or "") != address:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        place = (address, port or self._ephemeral_port(address))
        if place in self._listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = self._listeners[place] = SimulatedServer(self, loop, factory, place)
        return server

    def close_listener(self, server: "SimulatedServer") -> None:
        if self._listeners.get(server.place) is server:
            del self._listeners[server.place]

    def connect(
        self,
        loop: SimulatedLoop,
        factory: ProtocolFactory,
        host: str,
        port: int,
        connected: "asyncio.Future[asyncio.BaseProtocol]",
    ) -> SimulatedTransport:
        source = loop.owner.address
        target = self.resolve(source, host)
        client_place, server_place = (source, self._ephemeral_port(source)), (target, port)
        there, back = self.link(source, target), self.link(target, source)
        outgoing = Stream(self._scheduler, self._trace, there, back)
        incoming = Stream(self._scheduler, self._trace, back, there)
        label = f"{source}:{client_place[1]}"
        client = SimulatedTransport(outgoing, incoming, client_place, server_place, label)
        passive = SimulatedTransport(incoming, outgoing, server_place, client_place, f"{target}:{port}<{label}")
        passive.accept = self._accept
        client.belong_to(loop, factory)
        client.connect(connected)
        patience_s = there.settings.connect_timeout_ms / 1000
        self._scheduler.call_at(self._scheduler.now + patience_s, client.connect_timed_out)
        return client

    def _accept(self, passive: SimulatedTransport) -> bool:
        server = self._listeners.get(passive.get_extra_info("sockname"))
        if server is None:
            return False
        passive.belong_to(server.get_loop(), server.factory)
        return True

    def _ephemeral_port(self, address: str) -> int:
        port = self._next_port.get(address, _FIRST_EPHEMERAL_PORT)
        self._next_port[address] = port + 1
        return port


class _ListeningSocket:
    def __init__(self, place: tuple[str, int]) -> None:
        self._place = place

    def getsockname(self) -> tuple[str, int]:
        return self._place


class SimulatedServer(asyncio.AbstractServer):
    def __init__(self, network: Network, loop: SimulatedLoop, factory: ProtocolFactory, place: tuple[str, int]) -> None:
        self._network = network
        self._loop = loop
        self.factory = factory
        self.place = place
        self.sockets = (_ListeningSocket(place),)

    def close(self) -> None:
        self._network.close_listener(self)
        self.sockets = ()  # type: ignore[assignment]

    async def wait_closed(self) -> None:
        return

    async def start_serving(self) -> None:
        return

    async def serve_forever(self) -> None:
        await self._loop.create_future()

    def is_serving(self) -> bool:
        return bool(self.sockets)

    def get_loop(self) -> SimulatedLoop:
        return self._loop
