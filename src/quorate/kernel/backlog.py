"""Work on many things, a few of them in each turn of the loop, so that no turn takes long however many there are."""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)

#: A count and not a time, so that a simulation takes the same turns every time. Each takes some 10 to 50 µs.
PER_TURN = 100


class Backlog(Generic[Item]):
    """In the order of arrival. What is added again before its turn keeps its place."""

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
