"""A timer that knows when it is due. Those of a loop need not: uvloop's do not where that is at once."""

import asyncio
from collections.abc import Callable


class Alarm:
    __slots__ = ("_handle", "due_s")

    def __init__(self, loop: asyncio.AbstractEventLoop, due_s: float, callback: Callable[[], None]) -> None:
        """``due_s`` is a time of the loop; one that has passed means at once."""
        self.due_s = due_s
        self._handle = loop.call_at(due_s, callback)

    def cancel(self) -> None:
        self._handle.cancel()
