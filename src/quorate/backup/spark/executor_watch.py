"""Notices that a job waits for executors that do not come. Pure: time and counts are handed in.

Spark itself waits without a word for as long as it takes, also where no worker is large enough and none ever will be.
"""

from collections.abc import Mapping

_PATIENCE_S = 20.0
_TOLD_AGAIN_S = 60.0
LOOK_S = 2.0  # Often enough for the patience.


class ExecutorWatch:
    """Told now and then how many executors there are; says what the user is to know."""

    def __init__(self, now_s: float, master: str, conf: Mapping[str, str]) -> None:
        self._master = master
        self._conf = conf
        self._without_since_s = now_s
        self._tell_at_s = now_s + _PATIENCE_S

    def look(self, now_s: float, executor_count: int) -> str | None:
        if executor_count > 0:
            self._without_since_s = now_s
            self._tell_at_s = now_s + _PATIENCE_S
            return None
        if now_s < self._tell_at_s:
            return None
        self._tell_at_s = now_s + _TOLD_AGAIN_S
        return (
            f"no executor for {now_s - self._without_since_s:.0f} s: {self._master} has given none. Each needs "
            f"{self._needs()}: ask for less with --conf, or see whether its workers are free and can reach this machine"
        )

    def _needs(self) -> str:
        memory = self._conf.get("spark.executor.memory", "1g")
        cores = self._conf.get("spark.executor.cores")
        return f"spark.executor.memory={memory}" + ("" if cores is None else f" and spark.executor.cores={cores}")
