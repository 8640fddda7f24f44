"""Runs jobs on a Spark Connect server. Does I/O."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from quorate.backup.spark.session.job import JobWatcher, QueryWatcher, Result, SparkJob
from quorate.backup.spark.session.tasks import TaskRunner, Work, collect_results

_ROWS_TO_SPREAD = 4096


class ConnectDriver:
    def __init__(self, session: Any) -> None:
        self._session = session

    def slots(self) -> int:
        """The server's default parallelism: into how many partitions it puts rows when nobody says."""
        from pyspark.sql.functions import spark_partition_id

        return int(self._session.range(0, _ROWS_TO_SPREAD).select(spark_partition_id()).distinct().count())

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        runner, progress = TaskRunner(work, tasks, None, None), _Progress(len(tasks))
        return self._run(
            lambda: collect_results(self._session, runner, len(tasks)),
            progress,
            lambda: watcher.tasks_finished([], progress.finished_count),
        )

    def query(self, action: Callable[[Any], Result], watcher: QueryWatcher) -> Result:
        progress = _Progress()
        return self._run(
            lambda: action(self._session),
            progress,
            lambda: watcher.tasks_counted(progress.finished_count, progress.task_count),
        )

    def _run(self, action: Callable[[], Result], progress: "_Progress", look: Callable[[], None]) -> Result:
        session = self._session
        job = SparkJob(action, mark=session.addTag, cancel=session.interruptTag)
        session.registerProgressHandler(progress.note)
        try:
            threading.Thread(target=job.run, daemon=True).start()
            return job.watch(look)
        finally:
            session.removeProgressHandler(progress.note)


class _Progress:
    """The server tells how many tasks are done, but not which."""

    def __init__(self, task_count: int | None = None) -> None:
        self._is_planned = task_count is not None
        self.task_count = task_count or 0
        self.finished_count = 0

    def note(self, stages: Any, **_: Any) -> None:
        finished = sum(stage.num_completed_tasks for stage in stages or ())
        if not self._is_planned:
            self.task_count = max(self.task_count, sum(stage.num_tasks for stage in stages or ()))
        # A task that was tried again is counted twice.
        self.finished_count = min(self.task_count, max(self.finished_count, finished))
