"""Runs a command and counts the CPU seconds of all that works for it, whoever its parent is. Does I/O.

Spark's Python daemon lets its children go unheard, so their time is in no parent's; the processes of a warm Spark are
nobody's children. All have inherited one variable, by which they are found, and are looked at until they end.
"""

import os
import subprocess
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.contenders.contender import ContenderFailed
from benchmarks.process_usage import cpu_seconds

_INTERVAL_S = 0.03
_VARIABLE = "BENCHMARK_MARK"
_TIMEOUT_S = 300


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float


class Workplace:
    """Commands that share one mark: the processes that one of them leaves behind work for the next."""

    def __init__(self, temporary: Path) -> None:
        mark = uuid.uuid4().hex
        self.environment = os.environ | {_VARIABLE: mark, "TMPDIR": str(temporary)}
        self._mark = f"{_VARIABLE}={mark}".encode()
        self._is_marked: dict[int, bool] = {}
        self._cpu_seconds: dict[int, float] = {}

    def run(self, command: Sequence[str]) -> Cost:
        before_s = self.cpu_seconds()
        started = time.monotonic()
        with subprocess.Popen(
            command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            is_over = threading.Event()
            watching = threading.Thread(target=self._watch, args=(is_over,), daemon=True)
            watching.start()
            output, _ = process.communicate(timeout=_TIMEOUT_S)
        seconds = time.monotonic() - started
        is_over.set()
        watching.join()
        if process.returncode != 0:
            raise ContenderFailed(f"{' '.join(command)} ended with {process.returncode}: {output}")
        return Cost(seconds, self.cpu_seconds() - before_s)

    def _watch(self, is_over: threading.Event) -> None:
        while not is_over.wait(_INTERVAL_S):
            self.cpu_seconds()

    def cpu_seconds(self) -> float:
        """All that was seen so far; of a process that has ended, what it had when it was last looked at."""
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            pid = int(entry.name)
            with suppress(OSError):  # It ended meanwhile.
                if pid not in self._is_marked:
                    self._is_marked[pid] = self._mark in Path(entry.path, "environ").read_bytes().split(b"\0")
                if self._is_marked[pid]:
                    self._cpu_seconds[pid] = max(self._cpu_seconds.get(pid, 0.0), cpu_seconds(pid))
        return sum(self._cpu_seconds.values())
