"""Turns on the event loop for work that is too long for one: one slice of it in each turn, however much there is.

A coroutine with more to do waits for its turn between two slices (``Turns``). Those that wait are served in order, one
in each turn of the loop, so that many of them together hold it no longer than one. A ``Backlog`` is work on many things
that nobody waits for, a few of them in each turn.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")
Item = TypeVar("Item", bound=Hashable)

#: How many elements are answered in one slice; a hundred mostly take a few milliseconds.
SLICE_ELEMENTS = 100
#: How many items of a backlog. A count and not a time, so that a simulation takes the same turns every time; each takes
#: some 10 to 50 µs.
PER_TURN = 100


def _one(_: object) -> int:
    return 1


class Turns:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    def next(self) -> "asyncio.Future[None]":
        """Done when it is the caller's turn."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            self._loop.call_soon(self._give_turn)
        return turn

    async def sliced(self, elements: Iterable[T], weight: Callable[[T], int] = _one) -> AsyncIterator[T]:
        """The elements, with a wait for the next turn whenever a slice is full."""
        room = SLICE_ELEMENTS
        for element in elements:
            if room <= 0:
                await self.next()
                room = SLICE_ELEMENTS
            room -= weight(element)
            yield element

    def _give_turn(self) -> None:
        while self._waiting:
            turn = self._waiting[0]
            if not turn.done():  # Whoever waited may have gone.
                turn.set_result(None)
                # It runs in the next turn of the loop, and so does the next to be given one.
                self._loop.call_soon(self._end_turn)
                return
            self._waiting.popleft()

    def _end_turn(self) -> None:
        self._waiting.popleft()
        self._give_turn()


class Backlog(Generic[Item]):
    """Work on each of many items, in the order of arrival. What is added again before its turn keeps its place."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[Item], None],
        on_failure: Callable[[Exception], None],
        *,
        then: Callable[[], None] = lambda: None,
        per_turn: int = PER_TURN,
    ) -> None:
        """``then`` is called whenever nothing is left."""
        self._loop = loop
        self._work = work
        self._then = then
        self._on_failure = on_failure
        self._per_turn = per_turn
        self._items: dict[Item, None] = {}
        self._is_scheduled = False
        self._is_running = False

    def __bool__(self) -> bool:
        return bool(self._items)

    def __contains__(self, item: Item) -> bool:
        return item in self._items

    def add(self, items: Iterable[Item]) -> None:
        """For the next turns."""
        self._items.update(dict.fromkeys(items))
        self._schedule()

    def run(self, items: Iterable[Item]) -> None:
        """The first ones at once, as far as a turn goes: where there are few, everything is done when this returns."""
        self._items.update(dict.fromkeys(items))
        if not self._is_scheduled:
            self._take_turn()

    def clear(self) -> None:
        self._items.clear()

    def _schedule(self) -> None:
        if self._items and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._is_scheduled = False
        self._take_turn()

    def _take_turn(self) -> None:
        if self._is_running or not self._items:
            return
        self._is_running = True
        try:
            for item in list(islice(self._items, self._per_turn)):
                if item in self._items:
                    del self._items[item]
                    self._work(item)
        except Exception as error:
            self._on_failure(error)
        finally:
            self._is_running = False
        if self._items:
            self._schedule()
        else:
            self._then()
