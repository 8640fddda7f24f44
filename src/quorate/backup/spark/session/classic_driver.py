"""Runs jobs on a session that has its own JVM: a local master or a cluster. Does I/O.

Spark itself waits without a word for executors, also where no worker is large enough and none ever will be: here the
user is told.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pyspark import AccumulatorParam, InheritableThread
from pyspark.sql import SparkSession

from quorate.backup.spark.session.job import JobWatcher, QueryWatcher, Result, SparkJob
from quorate.backup.spark.session.tasks import FinishedTask, ProgressListener, TaskRunner, Work, collect_results

_PATIENCE_S = 20.0
_TOLD_AGAIN_S = 60.0
LOOK_S = 2.0  # Often enough for the patience.


class ClassicDriver:
    def __init__(
        self, session: SparkSession, say: Callable[[str], None] = lambda _: None, *, is_shared: bool = False
    ) -> None:
        self._session = session
        self._is_shared = is_shared  # Jobs of other commands run beside those of this one.
        self._say = say
        self._context = session.sparkContext
        self._finished = self._context.accumulator([], _Lists())

    def slots(self) -> int:
        return self._context.defaultParallelism

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        self._finished.value = []
        listener = self._listener()
        runner = TaskRunner(work, tasks, self._finished, None if listener is None else listener.address)
        job = self._start(lambda: collect_results(self._session, runner, len(tasks)))
        seen = 0

        def look() -> None:
            nonlocal seen
            if listener is not None:
                watcher.tasks_advanced(listener.advances())
            finished = list(self._finished.value)
            watcher.tasks_finished(finished[seen:], len(finished))
            seen = len(finished)

        try:
            return job.watch(self._with_executors(look))
        finally:
            if listener is not None:
                listener.close()

    def _listener(self) -> ProgressListener | None:
        """Where the executors reach the driver. Without one, tasks count only when they end."""
        with suppress(OSError):
            return ProgressListener(self._context.getConf().get("spark.driver.host") or "127.0.0.1")
        return None

    def query(self, action: Callable[[SparkSession], Result], watcher: QueryWatcher) -> Result:
        job = self._start(lambda: action(self._session))
        return job.watch(self._with_executors(lambda: watcher.tasks_counted(*self._count_tasks(job.label))))

    def _with_executors(self, look: Callable[[], None]) -> Callable[[], None]:
        """Also look whether there are executors, where they are given by somebody else."""
        master = self._context.master or ""
        if master.startswith("local"):
            return look
        watch = ExecutorWatch(time.monotonic(), master, dict(self._context.getConf().getAll()))
        next_look_s = time.monotonic()

        def look_at_both() -> None:
            nonlocal next_look_s
            look()
            now_s = time.monotonic()
            if now_s >= next_look_s:
                next_look_s = now_s + LOOK_S
                line = watch.look(now_s, self._count_executors())
                if line is not None:
                    self._say(line)

        return look_at_both

    def _count_executors(self) -> int:
        status: Any = self._context._jsc.sc().getExecutorMemoryStatus()
        return int(status.size()) - 1  # The driver is among them.

    def _start(self, action: Callable[[], Result]) -> SparkJob[Result]:
        job = SparkJob(
            action,
            mark=self._mark,
            cancel=self._context.cancelJobGroup,
        )
        thread = InheritableThread(target=job.run, session=self._session)
        thread.daemon = True
        thread.start()
        return job

    def _mark(self, group: str) -> None:
        self._context.setJobGroup(group, "quorate", interruptOnCancel=True)
        if self._is_shared:
            self._context.setLocalProperty("spark.scheduler.pool", group)

    def _count_tasks(self, group: str) -> tuple[int, int]:
        """Finished tasks and all tasks of the group's jobs, as far as Spark has begun them."""
        tracker = self._context.statusTracker()
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
        stages = [tracker.getStageInfo(number) for job in jobs if job is not None for number in job.stageIds]
        known = [stage for stage in stages if stage is not None]
        return sum(stage.numCompletedTasks for stage in known), sum(stage.numTasks for stage in known)


class _Lists(AccumulatorParam[list[FinishedTask]]):
    """Only for the progress display: a task that Spark runs twice may be in it twice."""

    def zero(self, value: list[FinishedTask]) -> list[FinishedTask]:  # noqa: ARG002 - the base class asks for it
        return []

    def addInPlace(self, value1: list[FinishedTask], value2: list[FinishedTask]) -> list[FinishedTask]:  # noqa: N802
        return value1 + value2


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
