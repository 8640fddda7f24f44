"""The open connections: one for each broker, shared by all partitions and threads, more where the config allows it."""

import threading
from collections.abc import Callable

from quorate.client.clock import MonotonicClock
from quorate.client.connection import Connection
from quorate.client.errors import ConnectionLost
from quorate.kernel.address import Address


class _Lane:
    """The connections to one address. The lock is held while one is opened, so that a second user waits for it."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.open: list[Connection] = []


class Connections:
    def __init__(
        self, open_connection: Callable[[Address], Connection], *, per_broker: int, clock: MonotonicClock
    ) -> None:
        self._open_connection = open_connection
        self._per_broker = per_broker
        self._clock = clock
        self._lanes: dict[Address, _Lane] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def to(self, address: Address) -> Connection:
        """The least busy connection to the address; opened if there is none, or all are busy and more are allowed."""
        with self._lock:
            if self._is_closed:
                raise ConnectionLost(address, "this client is closed")
            lane = self._lanes.setdefault(address, _Lane())
        with lane.opening:
            lane.open = [connection for connection in lane.open if self._is_usable(connection)]
            best = min(lane.open, key=lambda connection: connection.in_flight, default=None)
            if best is not None and (best.in_flight == 0 or len(lane.open) >= self._per_broker):
                return best
            connection = self._open_connection(address)
            lane.open.append(connection)
        if self._is_closed:
            self.close()
        return connection

    def open_addresses(self) -> set[Address]:
        """Where a broker answered before, and the connection still stands."""
        with self._lock:
            lanes = list(self._lanes.items())
        return {address for address, lane in lanes if any(connection.is_open for connection in lane.open)}

    def forget(self, address: Address) -> None:
        """Close what leads to an address that no broker has any more, unless an answer is still to come."""
        with self._lock:
            lane = self._lanes.pop(address, None)
        for connection in lane.open if lane is not None else ():
            if connection.in_flight == 0:
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            for connection in lane.open:
                connection.close()

    def _is_usable(self, connection: Connection) -> bool:
        if connection.expires_ms is None or self._clock.now_ms() < connection.expires_ms:
            return connection.is_open
        if connection.in_flight == 0:
            connection.close()
        return False
