"""Connections that the rate of their address holds back (KIP-612).

Each until its turn or, where that is more than a second off, for a second, and then it is closed, as Apache Kafka does
with all of them: a client that is refused at once would try again at once. Their number has a bound, in all and of an
address.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

#: Of all addresses, and of one. Those beyond it are refused.
MAX_HELD = 100
MAX_HELD_OF_ADDRESS = 20
#: Nobody is held back for longer.
_MAX_HELD_S = 1.0
#: By how much a timer may be early.
_TIMER_EARLY_S = 0.001


class ConnectionRates(Protocol):
    """How many connections an address may make in a second."""

    def delay_s(self, address: str, now_s: float, at_most_s: float) -> float | None:
        """Count a connection; returns in how many seconds it may come in.

        None where that is further off than ``at_most_s``: then it was not counted.
        """
        ...


class NoConnectionRates:
    def delay_s(self, address: str, now_s: float, at_most_s: float) -> float | None:  # noqa: ARG002
        return 0.0


class Held(Protocol):
    @property
    def address(self) -> str: ...
    @property
    def socket(self) -> socket.socket: ...


HeldT = TypeVar("HeldT", bound=Held)


class HeldConnections(Generic[HeldT]):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, rates: ConnectionRates, release: Callable[[HeldT, bool], None]
    ) -> None:
        """``release`` is told of each when its time has come, and whether it may come in."""
        self._loop = loop
        self._rates = rates
        self._release = release
        #: Until when, in which order they came, and whether they may come in then.
        self._queue: list[tuple[float, int, HeldT, bool]] = []
        self._by_address: Counter[str] = Counter()
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._queue)

    def delay_s(self, address: str) -> float | None:
        """Count a connection; returns in how many seconds it may come in, None where it may not."""
        return self._rates.delay_s(address, self._loop.time(), _MAX_HELD_S)

    def hold(self, connection: HeldT, delay_s: float | None) -> bool:
        """False where too many are held already."""
        if len(self._queue) >= MAX_HELD or self._by_address[connection.address] >= MAX_HELD_OF_ADDRESS:
            return False
        due_s = self._loop.time() + (_MAX_HELD_S if delay_s is None else delay_s)
        self._number += 1
        heappush(self._queue, (due_s, self._number, connection, delay_s is not None))
        self._by_address[connection.address] += 1
        self._wake_later()
        return True

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for _, _, connection, _ in self._queue:
            connection.socket.close()
        self._queue.clear()

    def _wake_later(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(self._queue[0][0], self._release_due) if self._queue else None

    def _release_due(self) -> None:
        while self._queue and self._queue[0][0] <= self._loop.time() + _TIMER_EARLY_S:
            _, _, connection, may_come_in = heappop(self._queue)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]
            self._release(connection, may_come_in)
        self._wake_later()
