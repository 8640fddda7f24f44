"""How far running tasks are, told to the driver while they run. Does I/O.

Spark says something of a task only when it ends. So a worker sends its counts in small datagrams: nothing waits for
them, and one that is lost is made good by the next, since each has the totals. The driver takes only those that hold
the token of its session. They are for the display alone; what a job did is in its results.
"""

import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import msgspec

_INTERVAL_S = 0.25
_MAX_DATAGRAM_BYTES = 512
_MAX_DATAGRAMS = 10_000  # In one look: a flood must not hold up the driver.

#: Told what a task did since it was last told: bytes and records.
Report = Callable[[int, int], None]


def ignore(size_bytes: int, record_count: int) -> None:
    """For whoever does not want to know."""


class TaskAdvance(NamedTuple):
    """What the running attempt of a task has done so far."""

    number: int
    size_bytes: int
    record_count: int


class ProgressAddress(msgspec.Struct, frozen=True):
    """Where the driver listens. Travels to the workers."""

    host: str
    port: int
    token: bytes


class _Datagram(msgspec.Struct, frozen=True, array_like=True):
    token: bytes
    number: int
    size_bytes: int
    record_count: int


class ProgressListener:
    """The driver's end. None of its methods waits."""

    def __init__(self, host: str) -> None:
        """``OSError`` where the host is none of this machine's."""
        family = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)[0][0]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.bind((host, 0))
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise
        self.address = ProgressAddress(host, self._socket.getsockname()[1], secrets.token_bytes(16))

    def advances(self) -> list[TaskAdvance]:
        """What has come since the last look, the newest of each task."""
        found: dict[int, TaskAdvance] = {}
        with suppress(OSError):  # No more is there.
            for _ in range(_MAX_DATAGRAMS):
                data = self._socket.recv(_MAX_DATAGRAM_BYTES)
                advance = self._read(data)
                if advance is not None:
                    found[advance.number] = advance
        return list(found.values())

    def close(self) -> None:
        self._socket.close()

    def _read(self, data: bytes) -> TaskAdvance | None:
        try:
            datagram = msgspec.msgpack.decode(data, type=_Datagram)
        except msgspec.MsgspecError:
            return None
        if not secrets.compare_digest(datagram.token, self.address.token):
            return None
        return TaskAdvance(datagram.number, max(0, datagram.size_bytes), max(0, datagram.record_count))


class ProgressReporter:
    """A worker's end: called with what was done, it tells the driver a few times a second. It never fails."""

    def __init__(self, address: ProgressAddress, number: int, now: Callable[[], float] = time.monotonic) -> None:
        self._address = address
        self._number = number
        self._now = now
        self._size_bytes = self._record_count = 0
        self._socket: socket.socket | None = None
        with suppress(OSError):
            places = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_DGRAM)
            self._socket = socket.socket(places[0][0], socket.SOCK_DGRAM)
            self._socket.setblocking(False)
            self._socket.connect(places[0][4])
        self._send()  # That it has begun.

    def __call__(self, size_bytes: int, record_count: int) -> None:
        self._size_bytes += size_bytes
        self._record_count += record_count
        if self._now() >= self._due:
            self._send()

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self) -> None:
        self._due = self._now() + _INTERVAL_S
        if self._socket is not None:
            counts = _Datagram(self._address.token, self._number, self._size_bytes, self._record_count)
            with suppress(OSError):
                self._socket.send(msgspec.msgpack.encode(counts))
