"""The wall clock of a host: runs with virtual time, and may jump. The loop's own time never does."""

from tests.simulation.world.scheduler import Scheduler

#: When the world begins.
EPOCH_MS = 1_700_000_000_000


class HostClock:
    """Implements ``kernel.ports.Clock``."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ahead_ms = 0

    def now_ms(self) -> int:
        return EPOCH_MS + self._ahead_ms + int(self._scheduler.now * 1000)

    def jump(self, by_ms: int) -> None:
        """Forward, or back where negative."""
        self._ahead_ms += by_ms
