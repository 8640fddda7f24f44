"""What a client has used of its rate: it may use at once what fits its window, and has to wait for more.

The window is that of Apache Kafka's configs, ``quota.window.num`` samples of ``quota.window.size.seconds``, and so are
the times to wait for a client that writes a little at a time. Apache Kafka forgets a sample when it is old enough,
whether its time was waited for or not: who writes 5500 bytes at a time at 500 bytes per second gets 11000 through every
13 seconds there. Here, what was used is paid off at the limit and in no other way, so that the rate holds for any size.
"""

import msgspec


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    sample_count: int = 11
    sample_size_ms: int = 1000

    @property
    def size_ms(self) -> int:
        """Of the samples that are complete: all but the one that is being counted in."""
        return max(1, self.sample_count - 1) * self.sample_size_ms


class UsageWindow:
    def __init__(self, config: WindowConfig) -> None:
        self._size_ms = config.size_ms
        #: What is not paid off yet, at the time of the last look.
        self._used = 0.0
        self._seen_at_ms = 0.0
        self._limit_per_second = 0.0

    def is_unused(self, now_ms: float) -> bool:
        """Whether all is paid off: a new object would say the same."""
        return self._unpaid(now_ms) == 0

    def use(self, amount: float, limit_per_second: float, now_ms: float) -> int:
        """Count the amount; returns for how many milliseconds nothing must come until it fits the window again."""
        self._limit_per_second = limit_per_second
        self._used = self._unpaid(now_ms) + amount
        self._seen_at_ms = now_ms
        return max(0, round(self._used * 1000 / limit_per_second - self._size_ms))

    def _unpaid(self, now_ms: float) -> float:
        return max(0.0, self._used - self._limit_per_second * (now_ms - self._seen_at_ms) / 1000)
