"""Virtual time: one queue of what is due for all hosts and the network, in an order that only the seed decides.

Nothing takes time by itself. When nothing is due, time jumps to the next timer. Things due at the same time run in the
order in which they were asked for; no order ever comes from a hash or an address in memory.
"""

import gc
from asyncio.events import _set_running_loop
from collections import deque
from collections.abc import Callable
from enum import Enum
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from tests.simulation.world.due import Due, KernelEvent

#: More steps than this without time passing are a loop that never ends.
_MAX_STEPS_AT_ONE_TIME = 200_000
#: Cancelled timers are swept out of the queue when there are this many, and they are the larger part.
_MIN_CANCELLED_TO_SWEEP = 200
#: What is garbage may still act (an asyncio stream that nobody holds closes its connection): it is collected at steps
#: that the run decides, not the interpreter.
_STEPS_BETWEEN_COLLECTIONS = 20_000


class LoopState(Enum):
    RUNNING = "running"
    #: What is due waits until it is thawed, as after SIGSTOP.
    FROZEN = "frozen"
    #: What is due is dropped.
    DEAD = "dead"


class ScheduledLoop(Protocol):
    """What the scheduler knows of the loop that a handle belongs to."""

    state: LoopState
    held: list[Due]

    def call_exception_handler(self, context: dict[str, Any]) -> None: ...


class NothingWillHappen(AssertionError):
    """The run waits for something, and nothing is due, now or ever."""


class TimeIsUp(AssertionError):
    """What the run waits for did not happen within the virtual time allowed for it."""


class Scheduler:
    def __init__(self) -> None:
        self.now = 0.0
        self.steps = 0
        #: What is due now, in the order in which it runs.
        self.ready: deque[Due] = deque()
        self._timers: list[tuple[float, int, Due]] = []
        self._sequence = 0
        self._cancelled_timers = 0
        #: Set by whatever fails the run; looked at after each step.
        self.failure: BaseException | None = None

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        self.ready.append(KernelEvent(callback, args))

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> KernelEvent:
        event = KernelEvent(callback, args)
        self.add_timer(event, when)
        return event

    def add_timer(self, timer: Due, when: float) -> None:
        self._sequence += 1
        heappush(self._timers, (when, self._sequence, timer))

    def timer_cancelled(self) -> None:
        self._cancelled_timers += 1
        if self._cancelled_timers > _MIN_CANCELLED_TO_SWEEP and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [timer for timer in self._timers if not timer[2]._cancelled]
            heapify(self._timers)
            self._cancelled_timers = 0

    def run(self, is_over: Callable[[], bool], time_limit: float) -> None:
        """Run until ``is_over``, which is asked after each step; time must not pass ``time_limit`` before that."""
        collects_garbage = gc.isenabled()
        gc.disable()
        try:
            self._run(is_over, time_limit)
        finally:
            _set_running_loop(None)
            if collects_garbage:
                gc.enable()

    def _run(self, is_over: Callable[[], bool], time_limit: float) -> None:  # noqa: PLR0912 - a call less for each step
        ready = self.ready
        steps_at_this_time = 0
        running: ScheduledLoop | None = None
        while not is_over():
            if ready:
                due = ready.popleft()
                steps_at_this_time += 1
                if steps_at_this_time > _MAX_STEPS_AT_ONE_TIME:
                    raise AssertionError(f"time stands still at {self.now:.6f}: {due!r} and others go on for ever")
            else:
                due = self._next_timer(time_limit)
                steps_at_this_time = 0
            self.steps += 1
            if not self.steps % _STEPS_BETWEEN_COLLECTIONS:
                gc.collect()
            if due._cancelled:
                continue
            loop = due._loop
            if loop is not running:
                _set_running_loop(loop)
                running = loop
            if loop is None:
                due._callback(*due._args)
            elif loop.state is LoopState.RUNNING:
                try:
                    due._context.run(due._callback, *due._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    loop.call_exception_handler({"message": f"Exception in callback {due!r}", "exception": error})
            elif loop.state is LoopState.FROZEN:
                loop.held.append(due)
            if self.failure is not None:
                self.raise_failure()

    def raise_failure(self) -> None:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure

    def run_to(self, time: float) -> None:
        """Run everything that is due up to a time, then let it be that time."""
        self.run(lambda: not self.ready and not (self._timers and self._timers[0][0] <= time), time)
        self.now = max(self.now, time)

    def _next_timer(self, time_limit: float) -> Due:
        timers = self._timers
        if not timers:
            raise NothingWillHappen(f"nothing is due at {self.now:.6f}, and nothing is over")
        when, _, due = timers[0]
        if when > time_limit:
            raise TimeIsUp(
                f"not over at {self.now:.3f} s; the next thing happens after the limit of {time_limit:.3f} s"
            )
        heappop(timers)
        self.now = max(self.now, when)
        return due
