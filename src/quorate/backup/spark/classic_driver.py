"""Runs jobs on a session that has its own JVM: a local master or a cluster. Does I/O."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from pyspark import AccumulatorParam, InheritableThread
from pyspark.sql import SparkSession

from quorate.backup.spark.executor_watch import LOOK_S, ExecutorWatch
from quorate.backup.spark.spark_driver import JobWatcher, QueryWatcher, Result
from quorate.backup.spark.spark_job import SparkJob
from quorate.backup.spark.task_progress import ProgressListener
from quorate.backup.spark.task_runner import FinishedTask, TaskRunner, Work, collect_results


class ClassicDriver:
    def __init__(self, session: SparkSession, say: Callable[[str], None] = lambda _: None) -> None:
        self._session = session
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
            mark=lambda group: self._context.setJobGroup(group, "quorate", interruptOnCancel=True),
            cancel=self._context.cancelJobGroup,
        )
        thread = InheritableThread(target=job.run, session=self._session)
        thread.daemon = True
        thread.start()
        return job

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
