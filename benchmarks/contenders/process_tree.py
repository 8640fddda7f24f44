"""What a process and all its descendants take from the machine: CPU seconds and memory, read from ``/proc``."""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SAMPLING_INTERVAL_S = 0.1


class _Process(NamedTuple):
    pid: int
    parent_pid: int
    # Also that of its children which have ended, and theirs.
    cpu_seconds: float
    resident_bytes: int


def cpu_seconds(root_pid: int) -> float:
    """User and system time so far, also of descendants that have ended and were waited for."""
    return sum(process.cpu_seconds for process in _tree(root_pid))


def resident_bytes(root_pid: int) -> int:
    """The sum over the processes. Pages that they share count in each of them, so it is an upper bound."""
    return sum(process.resident_bytes for process in _tree(root_pid))


class MemoryWatch:
    """Looks at a tree several times a second; ``peak_bytes`` is the most it saw."""

    def __init__(self, root_pid: int) -> None:
        self._root_pid = root_pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.peak_bytes = resident_bytes(root_pid)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_over.wait(_SAMPLING_INTERVAL_S):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(self._root_pid))


def _tree(root_pid: int) -> Iterator[_Process]:
    children: dict[int, list[_Process]] = {}
    root: _Process | None = None
    for process in _all_processes():
        children.setdefault(process.parent_pid, []).append(process)
        if process.pid == root_pid:
            root = process
    waiting = [] if root is None else [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += children.get(process.pid, [])


def _all_processes() -> Iterator[_Process]:
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                stat = Path(entry.path, "stat").read_text()
            except (FileNotFoundError, ProcessLookupError):
                continue  # It ended meanwhile.
            # The second field is a name in brackets and may hold spaces: count from behind it.
            fields = stat.rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))
            yield _Process(int(entry.name), int(fields[1]), ticks / _TICKS_PER_SECOND, int(fields[21]) * _PAGE_BYTES)
