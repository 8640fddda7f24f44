"""Runs jobs on a Spark Connect server. Does I/O."""

import threading
from collections.abc import Sequence
from typing import Any

from quorate.kernel.errors import QuorateError
from quorate.pipeline.classic_driver import failure_sentence
from quorate.pipeline.spark_driver import JobWatcher, new_group_id
from quorate.pipeline.task_runner import TaskRunner, Work, results_frame

_WATCH_INTERVAL_S = 0.2
_CANCEL_TIMEOUT_S = 5


class ConnectDriver:
    def __init__(self, session: Any) -> None:
        self.session = session

    def slots(self) -> int:
        """The server's default parallelism: how many partitions a range gets that does not say."""
        from pyspark.sql.functions import spark_partition_id

        return int(self.session.range(0, 4096).select(spark_partition_id()).distinct().count())

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        job = _Job(self.session, TaskRunner(work, tasks, None), len(tasks))
        self.session.registerProgressHandler(job.note_progress)
        threading.Thread(target=job.run, daemon=True).start()
        try:
            while not job.is_over.wait(_WATCH_INTERVAL_S):
                watcher.tasks_finished([], job.finished_count)
        except BaseException:
            job.cancel()
            job.is_over.wait(_CANCEL_TIMEOUT_S)
            raise
        finally:
            self.session.removeProgressHandler(job.note_progress)
        return job.results()


class _Job:
    """Collected in a thread of its own, and interrupted by its tag."""

    def __init__(self, session: Any, runner: TaskRunner, count: int) -> None:
        self._session = session
        self._runner = runner
        self._count = count
        self._tag = new_group_id()
        self._rows: list[Any] = []
        self._error: Exception | None = None
        self.finished_count = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        try:
            self._session.addTag(self._tag)
            self._rows = results_frame(self._session, self._runner, self._count).collect()
        except Exception as error:
            self._error = error
        finally:
            self.is_over.set()

    def note_progress(self, stages: Any, **_: Any) -> None:
        # A task that is tried again is counted twice.
        finished = sum(stage.num_completed_tasks for stage in stages or ())
        self.finished_count = min(self._count, max(self.finished_count, finished))

    def cancel(self) -> None:
        self._session.interruptTag(self._tag)

    def results(self) -> list[bytes]:
        if self._error is not None:
            raise QuorateError(failure_sentence(self._error)) from self._error
        return [bytes(row.result) for row in self._rows]
