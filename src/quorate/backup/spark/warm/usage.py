"""Who uses a warm Spark, and when its time is over. Pure: it is told the time."""

import math


class Usage:
    """Kept for commands that are connected, and as long after the last of them as that one asked for."""

    def __init__(self, now_s: float, keep_warm_s: float) -> None:
        self.began_s = now_s
        self.commands = 0
        self.jobs = 0
        self._left_s = now_s
        self._keep_warm_s = keep_warm_s
        self._is_stopped = False

    def came(self, keep_warm_s: float) -> None:
        self.commands += 1
        self._keep_warm_s = keep_warm_s

    def left(self, now_s: float) -> None:
        self.commands -= 1
        self._left_s = now_s

    def stop(self) -> None:
        """Whatever uses it."""
        self._is_stopped = True

    def ends_in_s(self, now_s: float) -> float:
        if self._is_stopped:
            return 0.0
        return math.inf if self.commands else max(0.0, self._left_s + self._keep_warm_s - now_s)
