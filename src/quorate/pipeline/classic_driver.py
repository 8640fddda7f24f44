"""Runs jobs on a session that has its own JVM: a local master or a cluster. Does I/O."""

from collections.abc import Sequence

from pyspark import AccumulatorParam, InheritableThread
from pyspark.sql import SparkSession

from quorate.pipeline.spark_driver import JobWatcher
from quorate.pipeline.spark_job import SparkJob
from quorate.pipeline.task_runner import FinishedTask, TaskRunner, Work


class ClassicDriver:
    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._context = session.sparkContext
        self._finished = self._context.accumulator([], _Lists())

    def slots(self) -> int:
        return self._context.defaultParallelism

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        self._finished.value = []
        job = SparkJob(
            self._session,
            TaskRunner(work, tasks, self._finished),
            len(tasks),
            mark=lambda group: self._context.setJobGroup(group, "quorate", interruptOnCancel=True),
            cancel=self._context.cancelJobGroup,
        )
        thread = InheritableThread(target=job.collect, session=self._session)
        thread.daemon = True
        thread.start()
        seen = 0

        def look() -> None:
            nonlocal seen
            finished = list(self._finished.value)
            watcher.tasks_finished(finished[seen:], len(finished))
            seen = len(finished)

        return job.watch(look)


class _Lists(AccumulatorParam[list[FinishedTask]]):
    """Only for the progress display: a task that Spark runs twice may be in it twice."""

    def zero(self, value: list[FinishedTask]) -> list[FinishedTask]:  # noqa: ARG002 - the base class asks for it
        return []

    def addInPlace(self, value1: list[FinishedTask], value2: list[FinishedTask]) -> list[FinishedTask]:  # noqa: N802
        return value1 + value2
