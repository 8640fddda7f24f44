"""Keeps the memory of a process small, and the garbage collector from holding its event loop.

**Collections are short.** A full collection looks at every object that there is, 450,000 of them with 10,000
partitions, which takes a tenth of a second and more. What it has found alive is then frozen, so that the next one has
to do with newer objects only, and none takes long. Frozen objects still go when nothing refers to them; only what
refers to itself in a circle stays. So what comes and goes in numbers makes no circles: closed connections with the
requests that were cancelled, removed partitions, refused commands and batches are freed without a collection. An error
that is kept as a value was never raised, nor is it later (``KafkaError.again``), and a frame that an error leaves lets
go of the future that keeps it.

Circles that come all the same must not add up. So where the process has several times the blocks of memory that it
had when all was looked at last, one collection looks at everything once more: it is long, and the last resort. The
first one is due at two million blocks, which are less than 200 MB; 10,000 partitions take about a million. Where one
found circles, the next comes with half as much again. It is started by a timer of the loop, never in the middle of
what else the loop does. How many blocks there are is known at once, while to count what is frozen takes a walk over it.

What is there at the start is frozen at once. The next full collection is due when a quarter of what the last one found
alive has been added, so a second one has to find nothing before the start is over.

Python starts collections by the balance of objects that were made and freed. Where thousands are replaced, as those of
partitions are when their leaders move, the balance stays at zero and new objects pile up for one long collection. So a
timer of the loop looks at how many new objects there are, and collects them before they are many.

**Large blocks go back to the system.** The allocator of the GNU C library maps a block above a certain size by itself,
and returns it when it is freed. It raises that size to the largest block that was ever freed, up to 32 MiB, and keeps
smaller ones in the arena of each thread: a few batches of many megabytes that workers opened would grow a node for
good. A size that is set by hand stays.
"""

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import Callable

#: What is longer ends in a freeze, so that the longest is little longer.
_LONG_S = 0.005
_OLDEST_GENERATION = 2
#: A full collection comes with every third one of the middle generation, some 20,000 objects, and not with every tenth.
_THRESHOLDS = (700, 10, 2)
#: A collection of so many objects takes a few milliseconds.
_MANY_NEW_OBJECTS = 2_000
#: So many are not made by what requests need for a moment.
_SOME_NEW_OBJECTS = 700
_LOOK_INTERVAL_S = 0.025
#: Where there are some.
_SHORT_LOOK_INTERVAL_S = 0.005
#: Requests of a megabyte, the most that producers send by default, stay below it: mapping a block costs time.
LARGE_BLOCK_BYTES = 4 * 1024 * 1024
_M_MMAP_THRESHOLD = -3
#: Blocks of memory of which a process is never thought to have less, when it is said what is several times as many.
GENEROUS_BLOCKS = 500_000
_GROWTH_WITH_CIRCLES = 1.5
GROWTH_WITHOUT = 4.0
#: Of all blocks, where there were circles.
_FREED_SHARE = 0.2


def freeze_everything() -> None:
    """Have no collection look at what there is now, nor the next full one wait for a quarter of it to be added."""
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    gc.freeze()
    gc.collect()


class ShortCollections:
    """While it is installed, no collection has much more to do than the first one that was long."""

    def __init__(
        self,
        freeze: Callable[[], None] = gc.freeze,
        now_s: Callable[[], float] = time.thread_time,
        long_s: float = _LONG_S,
        blocks: Callable[[], int] = sys.getallocatedblocks,
        generous_blocks: int = GENEROUS_BLOCKS,
    ) -> None:
        self._freeze = freeze
        self._now_s = now_s
        self._long_s = long_s
        self._blocks = blocks
        self._generous_blocks = generous_blocks
        self._most_blocks = 0.0
        self._has_frozen = False
        self._begun_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def install(self, loop: asyncio.AbstractEventLoop) -> None:
        self._allow_more(GROWTH_WITHOUT)
        gc.callbacks.append(self._collecting)
        self._look_later(loop, _LOOK_INTERVAL_S)

    def remove(self) -> None:
        gc.callbacks.remove(self._collecting)
        if self._timer is not None:
            self._timer.cancel()

    def _look_later(self, loop: asyncio.AbstractEventLoop, delay_s: float) -> None:
        self._timer = loop.call_later(delay_s, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        new_objects = len(gc.get_objects(generation=0))
        if self._has_frozen and self._blocks() > self._most_blocks:
            self._look_at_everything()
        elif new_objects > _MANY_NEW_OBJECTS:
            gc.collect()
        self._has_frozen = False
        self._look_later(loop, _SHORT_LOOK_INTERVAL_S if new_objects > _SOME_NEW_OBJECTS else _LOOK_INTERVAL_S)

    def _look_at_everything(self) -> None:
        before = self._blocks()
        gc.unfreeze()
        gc.collect()
        self._freeze()
        had_circles = self._blocks() < before * (1 - _FREED_SHARE)
        self._allow_more(_GROWTH_WITH_CIRCLES if had_circles else GROWTH_WITHOUT)

    def _collecting(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < _OLDEST_GENERATION:
            return
        if phase == "start":
            self._begun_s = self._now_s()
        elif self._now_s() - self._begun_s > self._long_s:
            self._freeze()
            self._has_frozen = True

    def _allow_more(self, growth: float) -> None:
        self._most_blocks = growth * max(self._blocks(), self._generous_blocks)


def return_large_blocks() -> None:
    """To be called before threads are started. Does nothing where the C library has no such setting."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LARGE_BLOCK_BYTES)
