"""How much time the requests of a connection take of this node: of its loop, step by step, and of the workers.

For ``request_percentage`` (KIP-124), where 100 percent are the whole of one thread. Looked at only while there is such
a quota: ``RequestTimes.is_counted``. What small requests take is gathered and counted now and then, as to count costs
more than to look at a clock.
"""

import asyncio
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from types import TracebackType
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: So much of Produce and Fetch is gathered before it is counted. The first request of a connection is counted at once,
#: so that nobody gets around it with a connection for each.
_GATHERED_S: Final = 0.002


class RequestTime:
    """Of one connection. Only one request of a node has its loop at any moment, though many are under way."""

    def __init__(self, times: "RequestTimes") -> None:
        self._times = times
        #: What was not counted yet.
        self.taken_s = 0.0
        #: When it is due to be counted.
        self.due_at_s = 0.0
        #: Of the step that is being made.
        self.begun_s = 0.0

    def take_s(self) -> float:
        """What was taken since this was last asked, in the middle of a step."""
        now_s = self._times.now_s()
        taken_s = self.taken_s + now_s - self.begun_s
        self.begun_s, self.taken_s = now_s, 0.0
        return taken_s

    def counted(self, *, is_over: bool) -> None:
        """Who is over its quota is looked at with each request."""
        self.due_at_s = 0.0 if is_over else _GATHERED_S

    def begin(self) -> None:
        """The loop works for a request of the connection."""
        self._times.running = self
        self.begun_s = self._times.now_s()

    def end(self) -> None:
        self.taken_s += self._times.now_s() - self.begun_s
        self._times.running = None


class CountedSteps(Coroutine[Any, Any, T]):
    """Work whose steps are counted, and not what it waits for; for a task of its own."""

    def __init__(self, time: RequestTime, work: Coroutine[Any, Any, T]) -> None:
        self._time = time
        self._work = work

    def send(self, value: Any, /) -> Any:
        self._time.begin()
        try:
            return self._work.send(value)
        finally:
            self._time.end()

    def throw(
        self,
        error: type[BaseException] | BaseException,
        *rest: BaseException | object | TracebackType | None,
    ) -> Any:
        self._time.begin()
        try:
            return self._work.throw(error if isinstance(error, BaseException) else error())
        finally:
            self._time.end()
            del error, rest  # It keeps this frame, where it has been by now.

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()


class RequestTimes:
    def __init__(self, now_s: Callable[[], float]) -> None:
        """``now_s`` is a clock that runs while the loop works, unlike the loop's own."""
        self.now_s = now_s
        #: Whether anybody has a quota for it.
        self.is_counted = False
        #: Of the connection that the loop works for at this moment, if that is counted.
        self.running: RequestTime | None = None

    async def by_worker(
        self, loop: asyncio.AbstractEventLoop, executor: Executor, work: Callable[..., T], *arguments: Any
    ) -> T:
        """Have a worker do it, for the connection that the loop works for."""
        time = self.running
        if time is None:
            return await loop.run_in_executor(executor, work, *arguments)

        def measured() -> tuple[T, float]:
            begun_s = self.now_s()
            return work(*arguments), self.now_s() - begun_s

        result, taken_s = await loop.run_in_executor(executor, measured)
        time.taken_s += taken_s
        return result

    def counted(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """What a task of its own is to do for the connection that the loop works for."""
        time = self.running
        return work if time is None else CountedSteps(time, work)
