"""A clock that only the test moves."""


class FakeClock:
    def __init__(self, now_ms: int = 1_000_000) -> None:
        self._now_ms = now_ms
        self.slept_ms: list[int] = []

    def now_ms(self) -> int:
        return self._now_ms

    def sleep_ms(self, duration_ms: int) -> None:
        self.slept_ms.append(max(0, duration_ms))
        self._now_ms += max(0, duration_ms)

    def advance(self, duration_ms: int) -> None:
        self._now_ms += duration_ms
