"""Turns on the event loop for work that is too long for one: one slice of it in each turn, however much there is.

Whoever has more to do waits for its turn between two slices. Those that wait are served in order, one in each turn of
the loop, so that many of them together hold it no longer than one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

#: How many elements are answered in one slice; a hundred mostly take a few milliseconds.
SLICE_ELEMENTS = 100


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
