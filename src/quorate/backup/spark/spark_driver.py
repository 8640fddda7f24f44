"""What a run needs of Spark: run tasks, tell how many run at once, and say how far they are."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from quorate.backup.spark.task_progress import TaskAdvance
from quorate.backup.spark.task_runner import FinishedTask, Work

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")


class JobWatcher(Protocol):
    """Is told several times a second how far a job has come."""

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        """``finished`` has those that are new, where the session can tell them; ``finished_count`` counts all."""
        ...

    def tasks_advanced(self, advanced: Sequence[TaskAdvance]) -> None:
        """Those that have said since the last time how far they are, where the session can be told."""
        ...

    def phase(self, name: str) -> None:
        """What the run is doing from now on."""
        ...


class SparkDriver(Protocol):
    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        """Every task's result. When interrupted, the job is cancelled before the interrupt goes on."""
        ...

    def slots(self) -> int:
        """How many tasks run at once."""
        ...


class QueryWatcher(Protocol):
    def tasks_counted(self, finished_count: int, task_count: int) -> None:
        """How many tasks there are is known only when Spark has planned the query."""
        ...


class SparkQueries(Protocol):
    """A session for queries in Spark's own terms."""

    def query(self, action: "Callable[[SparkSession], Result]", watcher: QueryWatcher) -> Result:
        """Run one action. When interrupted, it is cancelled before the interrupt goes on."""
        ...


class OpenedSpark(SparkDriver, SparkQueries, Protocol):
    """What an open session can do."""
