"""What a run asks of Spark, and one action on it, which can be watched and cancelled.

An action runs in a thread of its own, since nothing can interrupt it.
"""

import re
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from quorate.backup.spark.session.tasks import FinishedTask, TaskAdvance, Work
from quorate.kernel.errors import QuorateError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Result = TypeVar("Result")
_WATCH_INTERVAL_S = 0.2
_CANCEL_TIMEOUT_S = 5
_OWN_ERROR = re.compile(r"^quorate\.[\w.]+: (.+)$", re.MULTILINE)


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


class RunWatcher(JobWatcher, Protocol):
    """Is told the same of a run whose jobs follow each other."""

    def begins(self, what: str, task_bytes: Sequence[int]) -> None:
        """A job of so many tasks is about to run."""
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


class SparkJob(Generic[Result]):
    """``mark`` labels what its thread starts, and ``cancel`` ends all that has the label."""

    def __init__(
        self, action: Callable[[], Result], *, mark: Callable[[str], None], cancel: Callable[[str], object]
    ) -> None:
        self._action = action
        self._mark = mark
        self._cancel = cancel
        self.label = f"quorate-{uuid.uuid4().hex}"
        self._results: list[Result] = []
        self._error: Exception | None = None
        self._is_over = threading.Event()

    def run(self) -> None:
        """For the thread."""
        try:
            self._mark(self.label)
            self._results.append(self._action())
        except Exception as error:
            self._error = error
        finally:
            self._is_over.set()

    def watch(self, look: Callable[[], None]) -> Result:
        """Look again and again until the job is over; an interrupt cancels it and goes on."""
        try:
            while not self._is_over.wait(_WATCH_INTERVAL_S):
                look()
        except BaseException:
            self._cancel(self.label)
            self._is_over.wait(_CANCEL_TIMEOUT_S)
            raise
        if self._error is not None:
            raise QuorateError(failure_sentence(self._error)) from self._error
        look()
        return self._results[0]


def failure_sentence(error: Exception) -> str:
    """Our own error out of a worker's traceback, or else Spark's first line."""
    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        return str(own[-1])
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return f"the Spark job failed: {lines[0] if lines else type(error).__name__}"
