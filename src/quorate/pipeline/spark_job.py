"""One job on Spark, collected in a thread of its own, since nothing can interrupt ``collect``. Does I/O."""

import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

from quorate.kernel.errors import QuorateError
from quorate.pipeline.task_runner import TaskRunner, results_frame

_WATCH_INTERVAL_S = 0.2
_CANCEL_TIMEOUT_S = 5
_OWN_ERROR = re.compile(r"^quorate\.[\w.]+: (.+)$", re.MULTILINE)


class SparkJob:
    """``mark`` labels what its thread starts, and ``cancel`` ends all that has the label."""

    def __init__(
        self,
        session: Any,
        runner: TaskRunner,
        count: int,
        *,
        mark: Callable[[str], None],
        cancel: Callable[[str], object],
    ) -> None:
        self._session = session
        self._runner = runner
        self._count = count
        self._mark = mark
        self._cancel = cancel
        self._label = f"quorate-{uuid.uuid4().hex}"
        self._rows: list[Any] = []
        self._error: Exception | None = None
        self._is_over = threading.Event()

    def collect(self) -> None:
        """For the thread."""
        try:
            self._mark(self._label)
            self._rows = results_frame(self._session, self._runner, self._count).collect()
        except Exception as error:
            self._error = error
        finally:
            self._is_over.set()

    def watch(self, look: Callable[[], None]) -> list[bytes]:
        """Look again and again until the job is over; an interrupt cancels it and goes on."""
        try:
            while not self._is_over.wait(_WATCH_INTERVAL_S):
                look()
        except BaseException:
            self._cancel(self._label)
            self._is_over.wait(_CANCEL_TIMEOUT_S)
            raise
        if self._error is not None:
            raise QuorateError(failure_sentence(self._error)) from self._error
        look()
        return [bytes(row.result) for row in self._rows]


def failure_sentence(error: Exception) -> str:
    """Our own error out of a worker's traceback, or else Spark's first line."""
    text = str(error)
    own = _OWN_ERROR.findall(text)
    if own:
        return str(own[-1])
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return f"the Spark job failed: {lines[0] if lines else type(error).__name__}"
