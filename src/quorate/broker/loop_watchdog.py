"""Names what held the event loop: a thread that reads the loop's stack while a heartbeat of the loop is overdue.

One turn of the loop should take less than 50 ms, whatever a client sends: heartbeats, elections and all other clients
wait for it. The loop does nothing but note the time of its beats; a thread looks at them, and samples the stack of the
loop's thread only where one is overdue. A process that was stopped or starved shows as a hold with little CPU time.
"""

import asyncio
import gc
import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice, repeat
from types import FrameType
from typing import Any

import msgspec

logger = logging.getLogger(__name__)

#: The longest that one turn of the loop may take.
HOLD_LIMIT_S = 0.05
_BEAT_S = 0.025
_SAMPLE_S = 0.01
#: A turn that does not end is told before it ends.
_UNFINISHED_S = 5.0
_LINE_INTERVAL_S = 10.0
_MAX_FRAMES = 5
_MAX_DEPTH = 200
_PACKAGE = "quorate."
_HANDLERS = "quorate.broker.handlers."


class LoopHold(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the loop that took too long."""

    held_ms: int
    #: What the loop's thread computed meanwhile; the rest it waited, for the disk or for the machine.
    cpu_ms: int
    #: Innermost first.
    by: str
    api: str = "-"


class LoopHolds:
    """The count of what held the loop, and the lines that tell of it: one every few seconds at most."""

    def __init__(self) -> None:
        self.count = 0
        self.longest_ms = 0
        self.latest: LoopHold | None = None
        self._untold = 0
        self._next_line_s = 0.0

    def note(self, hold: LoopHold, now_s: float) -> str | None:
        """Count the hold; returns the line to log, or None while another one was told of a moment ago."""
        self.count += 1
        self.longest_ms = max(self.longest_ms, hold.held_ms)
        self.latest = hold
        if now_s < self._next_line_s:
            self._untold += 1
            return None
        self._next_line_s = now_s + _LINE_INTERVAL_S
        untold, self._untold = self._untold, 0
        return (
            f"event loop held ms={hold.held_ms} cpu_ms={hold.cpu_ms} by={hold.by} api={hold.api} "
            f"count={self.count} untold={untold}"
        )


class LoopWatchdog:
    def __init__(self, loop: asyncio.AbstractEventLoop, holds: LoopHolds) -> None:
        self._loop = loop
        self._holds = holds
        self._beat = _Beat(0.0, 0.0)
        self._timer: asyncio.TimerHandle | None = None
        self._stopped = False
        self._thread = threading.Thread(target=self._watch, name="loop-watchdog", daemon=True)
        self._collection_began_s = 0.0
        #: When the last long garbage collection ended, and how long it took: no other thread runs meanwhile.
        self._collection = (0.0, 0.0)

    def start(self) -> None:
        """To be called on the loop, whose thread is the one that is watched."""
        self._watched = threading.get_ident()
        self._cpu_clock = time.pthread_getcpuclockid(self._watched)
        self._turn()
        gc.callbacks.append(self._collecting)
        self._thread.start()

    def stop(self) -> None:
        self._stopped = True
        gc.callbacks.remove(self._collecting)
        if self._timer is not None:
            self._timer.cancel()
        self._thread.join()

    def _turn(self) -> None:
        self._beat = _Beat(time.monotonic(), time.thread_time())
        self._timer = self._loop.call_later(_BEAT_S, self._turn)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        now_s = time.monotonic()
        if phase == "start":
            self._collection_began_s = now_s
        else:
            self._collection = now_s, now_s - self._collection_began_s

    def _watch(self) -> None:
        while not self._stopped:
            time.sleep(_BEAT_S)
            if time.monotonic() - self._beat.due_s > HOLD_LIMIT_S:
                self._follow(self._beat)

    def _follow(self, held: "_Beat") -> None:
        """Sample until the loop turns again."""
        stacks: Counter[tuple[str, str]] = Counter()
        while self._beat is held and not self._stopped:
            stacks[describe_stack(stack_of(self._watched))] += 1
            time.sleep(_SAMPLE_S)
            if time.monotonic() - held.due_s > _UNFINISHED_S and not held.is_told:
                held.is_told = True
                self._tell(held, _Beat(time.monotonic(), time.clock_gettime(self._cpu_clock)), stacks)
        if not held.is_told and self._beat is not held:
            self._tell(held, self._beat, stacks)

    def _tell(self, held: "_Beat", end: "_Beat", stacks: Counter[tuple[str, str]]) -> None:
        (by, api), _ = stacks.most_common(1)[0] if stacks else (("unknown", "-"), 1)
        held_s = end.at_s - held.due_s
        collected_at_s, collected_s = self._collection
        if collected_at_s > held.due_s and collected_s > held_s / 2:
            by = "garbage-collection"
        cpu_ms = round((end.cpu_s - held.cpu_s) * 1000)
        line = self._holds.note(LoopHold(held_ms=round(held_s * 1000), cpu_ms=cpu_ms, by=by, api=api), end.at_s)
        if line is not None:
            logger.warning("%s", line)


class _Beat:
    """One sign of life: when it came, and how much CPU time the loop's thread had used by then."""

    __slots__ = ("at_s", "cpu_s", "due_s", "is_told")

    def __init__(self, at_s: float, cpu_s: float) -> None:
        self.at_s = at_s
        self.cpu_s = cpu_s
        #: When the next one is due.
        self.due_s = at_s + _BEAT_S
        self.is_told = False


def stack_of(thread_id: int) -> list[FrameType]:
    """The frames of a thread, innermost first; none where it has ended.

    The thread must not run while they are collected: the frame of a coroutine that has been suspended since points to
    memory that something else uses by then. So the whole walk is one call into the interpreter, which no other thread
    can come into: it goes on from frame to frame, and ends where the last one has no outer one. Nor may a collection
    begin in it, for which the objects made here would be an occasion: its callbacks let other threads run.
    """
    frames: list[Any] = []
    innermost: Iterator[Any] = islice(map(dict.get, iter(sys._current_frames, None), repeat(thread_id)), 1)
    collects_garbage = gc.isenabled()
    gc.disable()
    try:
        frames.extend(accumulate(chain(innermost, repeat("f_back", _MAX_DEPTH)), getattr))
    except AttributeError:
        pass  # The outermost has none.
    finally:
        if collects_garbage:
            gc.enable()
    return [frame for frame in frames if isinstance(frame, FrameType)]


def describe_stack(frames: Iterable[FrameType]) -> tuple[str, str]:
    """Where the thread is, in this package's own terms, and which API's handler is at work, if any."""
    names: list[str] = []
    api = "-"
    for frame in frames:
        module, function = str(frame.f_globals.get("__name__", "")), frame.f_code.co_qualname
        if module.startswith(_HANDLERS):
            outer = function.partition(".")[0]  # A handler has the name of its API.
            api = module.removeprefix(_HANDLERS) if outer.startswith("_") else outer
        if len(names) < _MAX_FRAMES and (module.startswith(_PACKAGE) or not names):
            names.append(f"{module.removeprefix(_PACKAGE)}:{function}")
    return "<".join(names) or "unknown", api
