"""What a run needs of Spark: run tasks, tell how many run at once, and say how far they are. Pure."""

from collections.abc import Sequence
from typing import Protocol

from quorate.pipeline.task_runner import FinishedTask, Work


class JobWatcher(Protocol):
    """Is told several times a second how far a job has come."""

    def tasks_finished(self, finished: Sequence[FinishedTask], finished_count: int) -> None:
        """``finished`` has those that are new, where the session can tell them; ``finished_count`` counts all."""
        ...


class SparkDriver(Protocol):
    def run(self, work: Work, tasks: Sequence[bytes], watcher: JobWatcher) -> list[bytes]:
        """Every task's result. When interrupted, the job is cancelled before the interrupt goes on."""
        ...

    def slots(self) -> int:
        """How many tasks run at once."""
        ...
