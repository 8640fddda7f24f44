"""Runs jobs on a Spark Connect server. Does I/O."""

import threading
from collections.abc import Sequence
from typing import Any

from quorate.pipeline.spark_driver import JobWatcher
from quorate.pipeline.spark_job import SparkJob
from quorate.pipeline.task_runner import TaskRunner, Work

_ROWS_TO_SPREAD = 4096


class ConnectDriver:
    def __init__(self, session: Any) -> None:
        self._session = session

    def slots(self) -> int:
        """The server's default parallelism: into how many partitions it puts rows when nobody says."""
        from pyspark.sql.functions import spark_partition_id

        return int(self._session.range(0, _ROWS_TO_SPREAD).select(spark_partition_id()).distinct().count())

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        session, progress = self._session, _Progress(len(tasks))
        job = SparkJob(
            session,
            TaskRunner(work, tasks, None),
            len(tasks),
            mark=session.addTag,
            cancel=session.interruptTag,
        )
        session.registerProgressHandler(progress.note)
        try:
            threading.Thread(target=job.collect, daemon=True).start()
            return job.watch(lambda: watcher.tasks_finished([], progress.finished_count))
        finally:
            session.removeProgressHandler(progress.note)


class _Progress:
    """The server tells how many tasks are done, but not which."""

    def __init__(self, task_count: int) -> None:
        self._task_count = task_count
        self.finished_count = 0

    def note(self, stages: Any, **_: Any) -> None:
        finished = sum(stage.num_completed_tasks for stage in stages or ())
        # A task that was tried again is counted twice.
        self.finished_count = min(self._task_count, max(self.finished_count, finished))
