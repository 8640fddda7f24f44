"""Keeps one task to its share of the bytes per second. Pure: time and sleep are handed in."""

from collections.abc import Callable

_BURST_SECONDS = 0.5


def share_of_limit(bytes_per_second: float | None, *, tasks: int, slots: int) -> float | None:
    """What one task may have so that all that run at once keep to the limit. None: as much as it can get.

    Where there are fewer tasks than slots, none of the limit is set aside for tasks that do not exist.
    """
    return None if bytes_per_second is None else bytes_per_second / max(1, min(tasks, slots))


class RateLimit:
    """``take`` after each piece of work; it sleeps as long as the pieces so far were too fast.

    Time that was not used counts for half a second at most, so that a pause is not followed by a burst.
    """

    def __init__(
        self, bytes_per_second: float | None, *, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def take(self, size_bytes: int) -> None:
        if self._bytes_per_second is None:
            return
        now = self._now()
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + size_bytes / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)
