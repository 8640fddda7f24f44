"""A Spark session that many tests share, and runs of backups on it inside the test's own process.

Starting Spark takes seconds; a run on a session that is there takes a fraction of one.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from quorate.backup.config import parse_backup_config
from quorate.backup.planning.planner import Plan
from quorate.backup.spark.copy.backup_run import BackupRuns, client_config
from quorate.backup.spark.copy.run_report import RunReport
from quorate.backup.spark.session.job import JobWatcher, OpenedSpark, SparkDriver
from quorate.backup.spark.session.settings import SparkSettings
from quorate.backup.spark.session.spark_session import open_spark
from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance, Work
from quorate.kernel.errors import QuorateError
from tests.backup_commands import Backups


@contextmanager
def local_spark() -> Iterator[OpenedSpark]:
    with open_spark(SparkSettings(master="local[2]"), "tests", lambda line: None) as driver:
        yield driver


class QuietWatcher:
    """Remembers the last plan, what the run was doing, and how far its tasks were."""

    def __init__(self) -> None:
        self.plan: Plan | None = None
        self.finished: list[FinishedTask] = []
        self.advanced: list[TaskAdvance] = []
        self.phases: list[str] = []

    def planned(self, plan: Plan) -> None:
        self.plan = plan

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        self.finished += finished

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        self.advanced += advanced

    def phase(self, name: str) -> None:
        self.phases.append(name)


class InThisProcess:
    """Runs tasks one by one in this process, and again those that fail: a stand-in where Spark is no matter."""

    def __init__(self, attempts: int = 1) -> None:
        self._attempts = attempts

    def slots(self) -> int:
        return 1

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        return [self._run(work, task) for task in tasks]

    def _run(self, work: Work, task: bytes) -> bytes:
        for _ in range(self._attempts - 1):
            with suppress(QuorateError):
                return work(task).result
        return work(task).result


class EventBefore(InThisProcess):
    """Something happens before the jobs that do one kind of work."""

    def __init__(self, kind: type[Work], event: Callable[[], object]) -> None:
        super().__init__()
        self._kind = kind
        self._event = event

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        if isinstance(work, self._kind):
            self._event()
        return super().run(work, tasks, watcher)


class SparkWithEvent:
    """A session on which something happens between the plan and the copying, or while a job runs."""

    def __init__(
        self,
        spark: SparkDriver,
        before: Callable[[], None] = lambda: None,
        during: Callable[[], None] = lambda: None,
    ) -> None:
        self._spark = spark
        self._before = before
        self._during = during

    def slots(self) -> int:
        return self._spark.slots()

    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        self._before()
        return self._spark.run(work, tasks, _WatcherWithEvent(watcher, self._during))


class _WatcherWithEvent:
    def __init__(self, watcher: JobWatcher, during: Callable[[], None]) -> None:
        self._watcher = watcher
        self._during = during

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        self._during()
        self._watcher.tasks_finished(finished, finished_count)

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        self._watcher.tasks_advanced(advanced)

    def phase(self, name: str) -> None:
        self._watcher.phase(name)


def run_in_process(
    backups: Backups, config: Path, spark: Callable[[], SparkDriver], *, commit_unchanged: bool = True
) -> RunReport | None:
    parsed = parse_backup_config(config.read_text(), {}, config.name)
    runs = BackupRuns(parsed, client_config(parsed), backups.catalog(), spark)
    return runs.run(QuietWatcher(), commit_unchanged=commit_unchanged)
