"""Waiting for the first of several answers, on connections that other threads may use too."""

import select
from collections.abc import Sequence
from typing import Final, TypeVar

from quorate.client.clock import MonotonicClock
from quorate.client.connection import Connection, PendingResponse
from quorate.protocol.schema import Response

R = TypeVar("R", bound=Response)

#: Another thread may read our answer from a shared connection, which no poll reports.
_RECHECK_MS: Final = 20


def first_ready(
    flights: Sequence[tuple[Connection, PendingResponse[R]]], clock: MonotonicClock, timeout_ms: int
) -> int | None:
    """The index of one whose answer has come or is coming in; None after the timeout.

    Of one alone it says so at once: who waits for its answer waits no longer than the timeout.
    """
    return 0 if len(flights) == 1 else first_to_come(flights, clock, timeout_ms)


def first_to_come(
    flights: Sequence[tuple[Connection, PendingResponse[R]]], clock: MonotonicClock, timeout_ms: int
) -> int | None:
    """The same, but never before an answer has come or is coming in."""
    deadline_ms = clock.now_ms() + timeout_ms
    while clock.now_ms() < deadline_ms:
        for index, (connection, pending) in enumerate(flights):
            if pending.is_done or not connection.is_open or connection.poll_ready():
                return index
        readable = _poll([connection for connection, _ in flights])
        for index, (connection, _) in enumerate(flights):
            if connection.fileno() in readable:
                return index
    return None


def _poll(connections: Sequence[Connection]) -> set[int]:
    waiter = select.poll()
    for file_number in {connection.fileno() for connection in connections} - {-1}:
        waiter.register(file_number, select.POLLIN)
    return {file_number for file_number, _ in waiter.poll(_RECHECK_MS)}
