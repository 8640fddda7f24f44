"""The client's time: a clock that never goes back, and waiting. Handed in, so that tests own both."""

import time
from typing import Protocol


class MonotonicClock(Protocol):
    def now_ms(self) -> int: ...

    def sleep_ms(self, duration_ms: int) -> None: ...


class SystemClock:
    def now_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

    def sleep_ms(self, duration_ms: int) -> None:
        if duration_ms > 0:
            time.sleep(duration_ms / 1000)
