"""Runs jobs on a session that has its own JVM: a local master or a cluster. Does I/O."""

import re
import threading
from collections.abc import Sequence
from typing import Any

from pyspark import AccumulatorParam, InheritableThread
from pyspark.sql import SparkSession

from quorate.kernel.errors import QuorateError
from quorate.pipeline.spark_driver import JobWatcher, new_group_id
from quorate.pipeline.task_runner import FinishedTask, TaskRunner, Work, results_frame

_WATCH_INTERVAL_S = 0.2
_CANCEL_TIMEOUT_S = 5
_OWN_ERROR = re.compile(r"^quorate\.[\w.]+: (.+)$", re.MULTILINE)


class ClassicDriver:
    def __init__(self, session: SparkSession) -> None:
        self.session = session
        self._finished = session.sparkContext.accumulator([], _Lists())

    def slots(self) -> int:
        return self.session.sparkContext.defaultParallelism

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        self._finished.value = []
        job = _Job(self.session, TaskRunner(work, tasks, self._finished), len(tasks))
        thread = InheritableThread(target=job.run, session=self.session)
        thread.daemon = True
        thread.start()
        seen = 0
        try:
            while not job.is_over.wait(_WATCH_INTERVAL_S):
                finished = list(self._finished.value)
                watcher.tasks_finished(finished[seen:], len(finished))
                seen = len(finished)
        except BaseException:
            job.cancel()
            job.is_over.wait(_CANCEL_TIMEOUT_S)
            raise
        watcher.tasks_finished(list(self._finished.value)[seen:], len(tasks))
        return job.results()


class _Job:
    """Collected in a thread of its own, since nothing can interrupt ``collect``; cancelled by its group."""

    def __init__(self, session: SparkSession, runner: TaskRunner, count: int) -> None:
        self._session = session
        self._runner = runner
        self._count = count
        self._group = new_group_id()
        self._rows: list[Any] = []
        self._error: Exception | None = None
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            self._session.sparkContext.setJobGroup(self._group, "quorate", interruptOnCancel=True)
            self._rows = results_frame(self._session, self._runner, self._count).collect()
        except Exception as error:
            self._error = error
        finally:
            self.is_over.set()

    def cancel(self) -> None:
        self._session.sparkContext.cancelJobGroup(self._group)

    def results(self) -> list[bytes]:
        if self._error is not None:
            raise QuorateError(failure_sentence(self._error)) from self._error
        return [bytes(row.result) for row in self._rows]


class _Lists(AccumulatorParam[list[FinishedTask]]):
    def zero(self, value: list[FinishedTask]) -> list[FinishedTask]:  # noqa: ARG002 - the base class asks for it
        return []

    def addInPlace(self, value1: list[FinishedTask], value2: list[FinishedTask]) -> list[FinishedTask]:  # noqa: N802
        return value1 + value2


def failure_sentence(error: Exception) -> str:
    """Our own error out of a worker's traceback, or else Spark's first line."""
    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        return str(own[-1])
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return f"the Spark job failed: {lines[0] if lines else type(error).__name__}"
