"""Background tasks that cannot fail unseen, and changes that many wait for.

Whoever starts a task that nobody awaits starts it in a ``TaskScope``, which owns it: its failure goes to one handler,
and it ends with the scope. A task that somebody awaits is an ``awaited_task``. ``Notifier`` wakes everybody who waits
for the next change of something.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

FailureHandler = Callable[[Exception], None]


def monotonic_ms(loop: asyncio.AbstractEventLoop) -> int:
    """The loop's own time, for what is only ever compared with itself."""
    return round(loop.time() * 1000)


def awaited_task(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Run ``work`` for somebody who awaits the task, and so gets its failure. Nobody else may be meant to see it."""
    return loop.create_task(work)


class TaskScope:
    def __init__(self, loop: asyncio.AbstractEventLoop, on_failure: FailureHandler) -> None:
        """``on_failure`` gets each exception that ends a task of this scope; being cancelled is no failure."""
        self._loop = loop
        self._on_failure = on_failure
        #: Not a set, whose order differs from run to run: a simulation cancels them in the same order every time.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        """How many tasks run."""
        return len(self._tasks)

    def spawn(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run ``work`` beside everything else. Nobody has to look at the task that this returns."""
        task = self._loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def cancel_all(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Cancel what runs, and wait until it has ended. A task may close its own scope; it is not waited for."""
        self.cancel_all()
        others = self._tasks.keys() - {asyncio.current_task(self._loop)}
        if others:
            await asyncio.wait(others)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.pop(task)
        if task.cancelled():
            return
        error = task.exception()
        if isinstance(error, Exception):
            self._on_failure(error)


def logged_failures(logger: logging.Logger, activity: str) -> FailureHandler:
    """For best-effort work, which is tried again later: an ERROR line with the traceback."""

    def on_failure(error: Exception) -> None:
        logger.error("%s failed error=%s", activity, error, exc_info=error)

    return on_failure


class Notifier:
    """Wakes everybody who waits for the next change.

    Take ``next_change`` before looking at what changes: a change between the look and the wait is not missed then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next: asyncio.Future[None] = loop.create_future()

    @property
    def next_change(self) -> "asyncio.Future[None]":
        """Many wait for the same future; use ``asyncio.wait``, which does not cancel it."""
        return self._next

    def notify(self) -> None:
        changed, self._next = self._next, self._loop.create_future()
        if not changed.done():
            changed.set_result(None)


class Superseded(Exception):
    """The work was given up because something newer has taken the place of what it was for."""


async def unless_superseded(
    loop: asyncio.AbstractEventLoop,
    work: Coroutine[Any, Any, T],
    changes: Notifier,
    is_superseded: Callable[[], bool],
) -> T:
    """The result of ``work``; raises ``Superseded`` as soon as a change makes it pointless, and cancels it."""
    attempt: asyncio.Future[Any] = loop.create_task(work)
    try:
        while True:
            await asyncio.wait([attempt, changes.next_change], return_when=asyncio.FIRST_COMPLETED)
            if attempt.done():
                result: T = attempt.result()
                return result
            if is_superseded():
                raise Superseded
    finally:
        attempt.cancel()
        # The caller may be cancelled in the very turn in which the attempt fails; nobody waits for it any more.
        attempt.add_done_callback(_retrieve_exception)
        del attempt  # It keeps the error that it raises, and that this frame.


def _retrieve_exception(attempt: "asyncio.Future[Any]") -> None:
    if not attempt.cancelled():
        attempt.exception()
