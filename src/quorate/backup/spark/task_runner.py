"""What runs inside Spark's Python workers: takes the task's number, does its work, sends back one row.

The runner travels to the workers with all tasks of the job, so tasks must be small; they are lists of what to do, not
data.
"""

import gc
import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from quorate.backup.spark.task_progress import ProgressAddress, ProgressReporter, Report, ignore

if TYPE_CHECKING:
    import pyarrow
    from pyspark import Accumulator
    from pyspark.sql import DataFrame, SparkSession


class FinishedTask(NamedTuple):
    number: int
    size_bytes: int
    record_count: int


class Outcome(NamedTuple):
    """What one task gives: the result for the driver, and how much it did, for the progress display."""

    result: bytes
    size_bytes: int
    record_count: int


class Work(Protocol):
    """What a task does. It reports what it has done while it is at it."""

    def __call__(self, task: bytes, report: Report = ignore, /) -> Outcome: ...


class TaskRunner:
    def __init__(
        self,
        work: Work,
        tasks: Sequence[bytes],
        finished: "Accumulator[list[FinishedTask]] | None",
        progress: ProgressAddress | None,
    ) -> None:
        self._work = work
        self._tasks = tasks
        self._finished = finished
        self._progress = progress

    def __call__(self, batches: "Iterator[pyarrow.Array]") -> "Iterator[pyarrow.Array]":
        import pyarrow

        for numbers in batches:
            yield pyarrow.array([self._run(index) for index in numbers.to_pylist()], pyarrow.binary())
        # The worker collects garbage after every task; what is loaded by now need not be looked at again.
        gc.freeze()

    def _run(self, index: int) -> bytes:
        outcome = self._reported(index)
        if self._finished is not None:
            self._finished.add([FinishedTask(index, outcome.size_bytes, outcome.record_count)])
        return outcome.result

    def _reported(self, index: int) -> Outcome:
        if self._progress is None:
            return self._work(self._tasks[index])
        reporter = ProgressReporter(self._progress, index)
        try:
            return self._work(self._tasks[index], reporter)
        finally:
            reporter.close()


def collect_results(session: "SparkSession", runner: TaskRunner, count: int) -> list[bytes]:
    return [bytes(row.result) for row in _results_frame(session, runner, count).collect()]


def _results_frame(session: "SparkSession", runner: TaskRunner, count: int) -> "DataFrame":
    """One partition, and so one Spark task, for each of ours; the DataFrame API works on every kind of session.

    An Arrow UDF and not ``mapInArrow``, which wants pandas, though it does not use it.
    """
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.util import PythonEvalType

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Type hints are preferred; a runner is no function that could have them.
        run = arrow_udf(runner, "binary", PythonEvalType.SQL_SCALAR_ARROW_ITER_UDF)
    return session.range(0, count, 1, count).select(run("id").alias("result"))
