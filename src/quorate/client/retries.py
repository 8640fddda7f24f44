"""How long to wait before the next attempt, when to give up, and the clock by which both are measured.

Time and randomness are handed in, so that tests own them.
"""

import time
from random import Random
from typing import Final, Protocol

import msgspec

from quorate.kernel.errors import RETRIABLE, ErrorCode


class MonotonicClock(Protocol):
    def now_ms(self) -> int: ...

    def sleep_ms(self, duration_ms: int) -> None: ...


class SystemMonotonicClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)


JITTER: Final = 0.2
#: A topic that was just created may be unknown to some brokers for a moment; a misspelt one stays unknown.
UNKNOWN_TOPIC_PATIENCE_MS: Final = 5_000
_MAX_DOUBLINGS = 30


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """Doubles from ``initial_ms`` to ``max_ms``, each delay spread by a fifth, so that clients do not retry in step."""

    initial_ms: int
    max_ms: int

    def delay_ms(self, failures: int, random: Random) -> int:
        """The delay after the given number of failures in a row; there is none before the first."""
        if failures <= 0:
            return 0
        delay = min(self.max_ms, self.initial_ms << min(failures - 1, _MAX_DOUBLINGS))
        return round(delay * random.uniform(1 - JITTER, 1 + JITTER))


class Retries:
    """The attempts of one operation. A success starts it anew: the deadline counts from the last progress."""

    def __init__(self, backoff: Backoff, timeout_ms: int, random: Random, now_ms: int) -> None:
        self._backoff = backoff
        self._timeout_ms = timeout_ms
        self._random = random
        self._failures = 0
        self._started_ms = now_ms
        self.not_before_ms = now_ms

    def succeeded(self, now_ms: int) -> None:
        self._failures = 0
        self._started_ms = now_ms
        self.not_before_ms = now_ms

    def failed(self, now_ms: int, *, at_once: bool = False) -> bool:
        """Plan the next attempt, ``at_once`` where the cause is already removed. False: the deadline has passed."""
        self._failures += 1
        if now_ms - self._started_ms >= self._timeout_ms:
            return False
        # A hint that leads nowhere must not spin: only the first failure in a row is repaid without a delay.
        delay_ms = 0 if at_once and self._failures == 1 else self._backoff.delay_ms(self._failures, self._random)
        self.not_before_ms = min(now_ms + delay_ms, self._started_ms + self._timeout_ms)
        return True

    def waited_ms(self, now_ms: int) -> int:
        return now_ms - self._started_ms


def is_hopeless(code: ErrorCode, waited_ms: int) -> bool:
    """Whether another attempt cannot help, or has not helped for long enough."""
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        return waited_ms >= UNKNOWN_TOPIC_PATIENCE_MS
    return code not in RETRIABLE
