"""Which connections are taken, wait or are refused: Apache Kafka's limits, and a way in for operators.

A connection from an address that has its number is refused; one beyond the number of all, or the rate, waits. Whatever
the limits are, some connections are kept for clients on the node's own machine, so that nobody is locked out of
changing them back; the least recently used of these makes room for the next.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

#: For clients on this machine, beyond all limits.
RESERVED = 8
_NO_LIMIT = 2**31 - 1
_LINE_INTERVAL_S = 10.0


class ConnectionCaps(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = _NO_LIMIT
    max_per_address: int = _NO_LIMIT
    per_address: Mapping[str, int] = {}
    max_per_second: int = _NO_LIMIT


class Admission(Enum):
    """What becomes of a connection that has just come in."""

    ADMIT = "admit"
    #: One of those that are kept for clients on this machine.
    ADMIT_RESERVED = "admit reserved"
    WAIT = "wait"
    REFUSE = "refuse"


class ConnectionQuotas:
    def __init__(self, caps: Callable[[], ConnectionCaps], descriptors: int | None = None) -> None:
        """``descriptors``: how many connections there can be at all, let in or not."""
        self._caps = caps
        self._descriptors = descriptors
        self._by_address: Counter[str] = Counter()
        self._open = 0
        #: How many may be taken now, up to those of a second.
        self._allowance = float(_NO_LIMIT)
        self._earned_until_s = 0.0

    def is_crowded(self, waiting: int, *, is_local: bool) -> bool:
        """Whether there is no descriptor for one more; the last ones are kept for clients on this machine too."""
        if self._descriptors is None:
            return False
        kept = 0 if is_local else min(RESERVED, self._descriptors // 4)
        return self._open + waiting >= self._descriptors - kept

    def judge(self, address: str, now_s: float, *, is_local: bool) -> tuple[Admission, str]:
        """What to do with a connection, and the config that is the reason where it is not to be taken as any other."""
        caps = self._caps()
        if self._by_address[address] >= caps.per_address.get(address, caps.max_per_address):
            name = "max.connections.per.ip" + (".overrides" if address in caps.per_address else "")
            return (Admission.ADMIT_RESERVED if is_local else Admission.REFUSE), name
        if self._open >= caps.max_connections:
            reason = "max.connections"
        elif not self._is_earned(caps.max_per_second, now_s):
            reason = "max.connection.creation.rate"
        else:
            return Admission.ADMIT, ""
        return (Admission.ADMIT_RESERVED if is_local else Admission.WAIT), reason

    def opened(self, address: str) -> None:
        self._allowance = max(0.0, self._allowance - 1)
        self._open += 1
        self._by_address[address] += 1

    def closed(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_earned(self, per_second: int, now_s: float) -> bool:
        elapsed_s, self._earned_until_s = now_s - self._earned_until_s, now_s
        if not per_second:
            return False
        self._allowance = min(max(1.0, per_second), self._allowance + elapsed_s * per_second)
        return self._allowance >= 1


class RefusedConnections:
    """The count of connections that were not taken, and the lines that tell of it: one every few seconds at most."""

    def __init__(self) -> None:
        self.count = 0
        self._untold = 0
        self._next_line_s = 0.0

    def note(self, reason: str, address: str, now_s: float) -> str | None:
        """Count it; returns the line to log, or None while another one was told of a moment ago."""
        self.count += 1
        if now_s < self._next_line_s:
            self._untold += 1
            return None
        self._next_line_s = now_s + _LINE_INTERVAL_S
        untold, self._untold = self._untold, 0
        return f"connection refused reason={reason!r} peer={address} count={self.count} untold={untold}"
