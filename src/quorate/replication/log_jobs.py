"""What logs need of the disk beside appends and reads: opened, closed and removed by worker threads, several in a job.

Few jobs run at a time, so that what producers have synced does not wait behind thousands of logs, nor the loop for
threads that compute. Topics take turns: a small one does not wait for one of 10,000 partitions.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

#: Does something with every log of a job; one result each, in their order.
Job = Callable[[Sequence[Item]], Sequence[Result]]

_LOGS_A_JOB = 16


class LogJobs:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
        *,
        jobs_at_a_time: int,
    ) -> None:
        self._loop = loop
        self._executor = executor
        self._on_failure = on_failure
        self.jobs_at_a_time = jobs_at_a_time
        #: By topic and kind of job, in the order of the next turns.
        self._queues: dict[tuple[str, Job[Any, Any]], deque[tuple[Any, Callable[[Any], None]]]] = {}
        self._running = 0
        self._idle: list[asyncio.Future[None]] = []

    def submit(self, topic: str, job: Job[Item, Result], item: Item, done: Callable[[Result], None]) -> None:
        """Have the job do the item in a worker thread, then call ``done`` in the loop."""
        self._queues.setdefault((topic, job), deque()).append((item, done))
        if self._running < self.jobs_at_a_time:
            # At the end of the turn, so that one job takes all that the turn has submitted.
            self._running += 1
            self._loop.call_soon(self._next)

    def drop(self) -> None:
        """Begin nothing of what waits."""
        self._queues.clear()

    async def wait_until_idle(self) -> None:
        while self._running:
            idle = self._loop.create_future()
            self._idle.append(idle)
            await idle

    def _next(self) -> None:
        if not self._queues or self._running > self.jobs_at_a_time:
            self._running -= 1
            if not self._running:
                idle, self._idle = self._idle, []
                for future in idle:
                    if not future.done():
                        future.set_result(None)
            return
        (topic, job), queue = next(iter(self._queues.items()))
        del self._queues[topic, job]
        taken = list(islice(queue, _LOGS_A_JOB))
        for _ in taken:
            queue.popleft()
        if queue:
            self._queues[topic, job] = queue  # Behind the other topics.
        running: asyncio.Future[Sequence[Any]]
        running = self._loop.run_in_executor(self._executor, job, [item for item, _ in taken])
        running.add_done_callback(lambda finished: self._finished(finished, [done for _, done in taken]))

    def _finished(self, finished: "asyncio.Future[Sequence[Any]]", callbacks: Sequence[Callable[[Any], None]]) -> None:
        try:
            if not finished.cancelled():
                for done, result in zip(callbacks, finished.result(), strict=True):
                    done(result)
        except Exception as error:
            self._on_failure(error)
        self._loop.call_soon(self._next)
