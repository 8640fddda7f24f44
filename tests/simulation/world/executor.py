"""The worker threads of a host, without threads: work is done in one step, some virtual time after it was handed over.

The result comes back some time later again, so that a crash can fall between the work and the knowledge of it.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


class WorkDelay(msgspec.Struct, frozen=True, kw_only=True):
    """How long work takes: usually between the two, now and then much longer."""

    minimum_ms: float = 0.05
    maximum_ms: float = 2.0
    slow_probability: float = 0.01
    slow_ms: float = 50.0

    def draw_seconds(self, random: Random) -> float:
        longest_ms = self.slow_ms if random.random() < self.slow_probability else self.maximum_ms
        return (self.minimum_ms + random.random() * (longest_ms - self.minimum_ms)) / 1000


class SimulatedExecutor(Executor):
    def __init__(
        self, loop: asyncio.AbstractEventLoop, random: Random, delay: WorkDelay, note: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._note = note
        self._random = random
        self.delay = delay

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise TypeError("work comes by run_in_executor of the loop")

    def start(self, function: Callable[..., T], args: tuple[Any, ...]) -> "asyncio.Future[T]":
        """Work for ``run_in_executor``. Who does not want the result any more cancels the future; the work is done."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._note(f"work {_name_of(function)}")
        total_s = self.delay.draw_seconds(self._random)
        until_done_s = total_s * self._random.random()

        def work() -> None:
            try:
                result = function(*args)
            except Exception as error:
                self._loop.call_later(total_s - until_done_s, _end, future, None, error)
            else:
                self._loop.call_later(total_s - until_done_s, _end, future, result, None)

        self._loop.call_later(until_done_s, work)
        return future


def _end(future: "asyncio.Future[Any]", result: object, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _name_of(function: Callable[..., Any]) -> str:
    """With its owner, where that has a name and not just an address in memory."""
    owner = getattr(function, "__self__", None)
    named = "__str__" in vars(type(owner))
    return f"{getattr(function, '__qualname__', '')} {owner if named else ''}"
