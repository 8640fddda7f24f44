"""Shows how far a job is: a live line on a terminal, a plain line now and then elsewhere. Writes to standard error.

A terminal that was closed, or a pipe that nobody reads any more, is no reason for the job to fail.
"""

import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Self

from quorate.cli.terminal import counted

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from quorate.backup.planning.planner import Plan
    from quorate.backup.spark.run_progress import RunProgress
    from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance

_PLAIN_INTERVAL_S = 5.0


class ProgressDisplay:
    """A context manager, and the watcher of jobs inside its block."""

    def __init__(self, verb: str, *, is_quiet: bool = False) -> None:
        from quorate.backup.spark.run_progress import RunProgress

        self._verb = verb
        self._is_quiet = is_quiet
        self._live: Progress | None = None
        self._bar: TaskID | None = None
        self._progress = RunProgress([], [], 0)
        self._started = self._last_line = time.monotonic()
        self._is_first_advance = True
        #: For runs that repeat themselves: what they are doing is shown, but not said line by line.
        self.is_brief = False

    def __enter__(self) -> Self:
        if sys.stderr.isatty() and not self._is_quiet:
            self._live = _live_progress()
            self._bar = self._live.add_task(self._verb, total=None, rates="")
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def phase(self, name: str) -> None:
        """What the run is doing from now on. Rates count from here: not the start of a JVM, nor the planning."""
        self._restart_clock()
        if self._live is not None and self._bar is not None:
            has_progress = self._progress.task_count > 0 and not self._progress.is_done
            self._live.update(self._bar, description=name, total=1.0 if has_progress else None, rates="")
        elif not self.is_brief:
            self.say(name)

    def planned(self, plan: "Plan") -> None:
        partitions = sum(len(topic.partitions) for topic in plan.topics)
        what = f"{counted(len(plan.topics), 'topic')}, {counted(partitions, 'partition')}"
        if plan.tasks:
            size = format_bytes(plan.estimated_bytes)
            self.say(f"{what}, about {size} to copy in {counted(len(plan.tasks), 'task')}")
        elif not self.is_brief:
            self.say(f"{what}, nothing new to copy")
        self.begin(type(self._progress).of_plan(plan))

    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        """A job of so many tasks is about to run."""
        self.phase(f"{what}: {format_bytes(sum(task_bytes))} in {counted(len(task_bytes), 'task')}")
        self.begin(type(self._progress)(task_bytes, [frozenset()] * len(task_bytes), 0))

    def begin(self, progress: "RunProgress") -> None:
        self._progress = progress
        self._restart_clock()
        if self._live is not None and self._bar is not None:
            self._live.reset(self._bar, total=1.0 if progress.task_count else None, rates="")

    def tasks_finished(self, finished: "Sequence[FinishedTask]", finished_count: int) -> None:
        self._progress.update(finished, finished_count)
        self._show()

    def tasks_advanced(self, advanced: "Sequence[TaskAdvance]") -> None:
        if advanced and self._is_first_advance:
            self._restart_clock()  # Until now, Spark was getting its workers ready.
            self._is_first_advance = False
        self._progress.advance(advanced)

    def _restart_clock(self) -> None:
        self._started = self._last_line = time.monotonic()
        self._is_first_advance = True

    def _show(self) -> None:
        if self._live is not None and self._bar is not None:
            self._live.update(self._bar, completed=self._progress.fraction, rates=self._rates())
        elif time.monotonic() - self._last_line >= _PLAIN_INTERVAL_S:
            self._last_line = time.monotonic()
            self.say(f"{self._verb}: {self._progress.fraction:.0%}, {self._rates()}")

    def say(self, line: str) -> None:
        if self._is_quiet:
            return
        with suppress(OSError):
            if self._live is not None:
                self._live.console.print(line, highlight=False, markup=False)
            else:
                print(line, file=sys.stderr, flush=True)

    def _rates(self) -> str:
        progress = self._progress
        elapsed_s = max(time.monotonic() - self._started, 0.001)
        parts = [f"{progress.finished_tasks}/{progress.task_count} tasks"]
        if progress.topic_count:
            parts.insert(0, f"{progress.topics_done}/{progress.topic_count} topics")
        if progress.size_bytes:
            parts.append(f"{progress.size_bytes / elapsed_s / 1e6:.1f} MB/s")
            if progress.record_count:
                parts.append(f"{progress.record_count / elapsed_s:,.0f} records/s")
        seconds_left = progress.seconds_left(elapsed_s)
        if seconds_left is not None:
            parts.append(f"{format_seconds(seconds_left)} left")
        return ", ".join(parts)


def _live_progress() -> "Progress":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.fields[rates]}"),
        console=Console(stderr=True),
        transient=True,
    )


def format_bytes(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 1000:
            return f"{size_bytes:.0f} {unit}" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"


def format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
