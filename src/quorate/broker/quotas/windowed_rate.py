"""A rate over a window of samples, measured as Apache Kafka measures quotas. Pure.

The window is a row of samples of one size; what was counted in a sample is forgotten when the sample is as old as the
whole window. A rate is taken over all full samples even where there are fewer yet, so that a short burst after a pause
is no violation.
"""

from collections import deque

import msgspec


class WindowConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The broker configs ``quota.window.num`` and ``quota.window.size.seconds``."""

    sample_count: int = 11
    sample_size_ms: int = 1000

    @property
    def full_size_ms(self) -> int:
        """Of the samples that are complete: all but the one that is being counted in."""
        return max(1, self.sample_count - 1) * self.sample_size_ms


class WindowedRate:
    def __init__(self, config: WindowConfig) -> None:
        self._config = config
        #: Start and count of each sample, oldest first; starts are apart by whole sample sizes.
        self._samples: deque[tuple[float, float]] = deque()
        self._total = 0.0

    def record(self, amount: float, now_ms: float) -> None:
        self._forget(now_ms)
        self._total += amount
        if not self._samples:
            self._samples.append((now_ms, amount))
            return
        start_ms, counted = self._samples[-1]
        sizes_since = (now_ms - start_ms) // self._config.sample_size_ms
        if sizes_since < 1:
            self._samples[-1] = (start_ms, counted + amount)
        else:
            self._samples.append((start_ms + sizes_since * self._config.sample_size_ms, amount))

    def is_idle(self, now_ms: float) -> bool:
        """Whether nothing is left in the window: a new object would say the same."""
        self._forget(now_ms)
        return not self._samples

    def per_second(self, now_ms: float) -> float:
        self._forget(now_ms)
        return self._total * 1000 / self._window_ms(now_ms)

    def throttle_ms(self, limit_per_second: float, now_ms: float) -> int:
        """How long nothing must come so that the rate, taken over that time too, is back at its limit."""
        rate = self.per_second(now_ms)
        if rate <= limit_per_second:
            return 0
        return round((rate - limit_per_second) / limit_per_second * self._window_ms(now_ms))

    def _window_ms(self, now_ms: float) -> float:
        """From the oldest sample until now; sample sizes are added for samples that there could have been."""
        size_ms = self._config.sample_size_ms
        elapsed_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        missing = self._config.full_size_ms // size_ms - elapsed_ms // size_ms
        return elapsed_ms + max(0.0, missing) * size_ms

    def _forget(self, now_ms: float) -> None:
        oldest_ms = now_ms - self._config.sample_count * self._config.sample_size_ms
        while self._samples and self._samples[0][0] <= oldest_ms:
            self._total -= self._samples.popleft()[1]
