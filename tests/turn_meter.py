"""An event loop that measures its own turns: the processor time of the longest, whatever else the machine does."""

import asyncio
import time
from typing import Any


class TurnMeter(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._workers_s = 0.0
        self.longest_s = 0.0

    def _run_once(self) -> None:
        begun_s, self._workers_s = time.thread_time(), 0.0
        super()._run_once()  # type: ignore[misc]
        self.longest_s = max(self.longest_s, time.thread_time() - begun_s - self._workers_s)

    def note_worker(self, seconds: float) -> None:
        """What workers do in this thread, in a simulation, is none of the loop's."""
        self._workers_s += seconds


def spare_workers(executor: Any, loop: TurnMeter) -> None:
    """Leaves out of account what the executor runs."""
    run = executor.run

    def measured(index: int) -> None:
        begun_s = time.thread_time()
        run(index)
        loop.note_worker(time.thread_time() - begun_s)

    executor.run = measured


def yardstick_s() -> float:
    """What a fixed piece of work takes, here and now: about as much as the longest turn may."""
    begun_s = time.thread_time()
    table: dict[int, tuple[int, str]] = {}
    for number in range(50_000):
        table[number] = (number, str(number))
    return time.thread_time() - begun_s
