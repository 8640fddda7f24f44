"""One action on Spark, run in a thread of its own, since nothing can interrupt an action. Does I/O."""

import re
import threading
import uuid
from collections.abc import Callable
from typing import Generic, TypeVar

from quorate.kernel.errors import QuorateError

_WATCH_INTERVAL_S = 0.2
_CANCEL_TIMEOUT_S = 5
_OWN_ERROR = re.compile(r"^quorate\.[\w.]+: (.+)$", re.MULTILINE)


Result = TypeVar("Result")


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
