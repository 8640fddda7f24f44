"""The time of requests: what the loop and the workers do for them, and none of what they wait for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorate.broker.request_time import RequestTime, RequestTimes
from tests.simulation.simulated_node import QueuedExecutor
from tests.simulation.world.world import World


class Stopwatch:
    def __init__(self) -> None:
        self.now_s = 50.0
        self.times = RequestTimes(lambda: self.now_s)

    def work(self, seconds: float) -> None:
        self.now_s += seconds

    def count(self, work: Coroutine[Any, Any, Any]) -> tuple[RequestTime, "asyncio.Task[Any]"]:
        """The time of a connection, and a request of it whose handler is to be awaited."""
        time = RequestTime(self.times)
        time.begin()
        counted = asyncio.get_running_loop().create_task(self.times.counted(work))
        time.end()
        return time, counted


def run(scenario: Callable[[Stopwatch], Coroutine[Any, Any, None]]) -> None:
    with World(1) as world:
        world.run(scenario(Stopwatch()))


def test_a_request_that_is_answered_at_once_takes_what_passes_meanwhile() -> None:
    watch = Stopwatch()
    time = RequestTime(watch.times)
    time.begin()
    watch.work(0.25)
    assert time.take_s() == 0.25
    watch.work(0.5)
    time.end()
    watch.work(8)
    time.begin()
    assert time.take_s() == 0.5
    assert time.take_s() == 0


def test_the_first_request_of_a_connection_is_counted_and_later_ones_when_there_is_something_to_count() -> None:
    time = RequestTime(Stopwatch().times)
    assert time.taken_s >= time.due_at_s
    time.counted(is_over=False)
    assert time.taken_s < time.due_at_s
    time.taken_s += 0.5
    assert time.taken_s >= time.due_at_s
    time.counted(is_over=True)
    assert time.due_at_s == 0


def test_only_the_steps_of_a_handler_are_counted_not_what_it_waits_for() -> None:
    async def scenario(watch: Stopwatch) -> None:
        async def handler() -> str:
            watch.work(1)
            await asyncio.sleep(0)
            watch.work(2)
            await asyncio.sleep(0)
            watch.work(4)
            return "answer"

        time, task = watch.count(handler())
        while not task.done():
            watch.work(100)  # For others.
            await asyncio.sleep(0)
        assert task.result() == "answer"
        assert time.taken_s == 7

    run(scenario)


def test_what_a_handler_starts_counts_with_it_and_nothing_twice() -> None:
    async def scenario(watch: Stopwatch) -> None:
        async def part() -> None:
            watch.work(2)
            await asyncio.sleep(0)
            watch.work(2)

        async def handler() -> None:
            watch.work(1)
            parts = [asyncio.get_running_loop().create_task(watch.times.counted(part())) for _ in range(3)]
            await asyncio.gather(*parts)
            await watch.times.counted(part())

        time, task = watch.count(handler())
        await task
        assert time.taken_s == 1 + 4 * 4

    run(scenario)


def test_two_requests_at_a_time_have_their_own() -> None:
    async def scenario(watch: Stopwatch) -> None:
        async def handler(seconds: float) -> None:
            for _ in range(3):
                watch.work(seconds)
                await asyncio.sleep(0)

        first, one = watch.count(handler(1))
        second, other = watch.count(handler(10))
        await asyncio.gather(one, other)
        assert (first.taken_s, second.taken_s) == (3, 30)
        assert watch.times.running is None

    run(scenario)


def test_the_time_of_a_worker_counts() -> None:
    async def scenario(watch: Stopwatch) -> None:
        workers = QueuedExecutor()

        def work() -> str:
            watch.work(5)
            return "done"

        async def handler() -> str:
            return await watch.times.by_worker(asyncio.get_running_loop(), workers, work)

        time, task = watch.count(handler())
        await asyncio.sleep(0)
        watch.work(100)  # Others come first.
        workers.run(0)
        assert await task == "done"
        assert time.taken_s == 5

    run(scenario)


def test_errors_and_cancellations_pass_through() -> None:
    async def scenario(watch: Stopwatch) -> None:
        seen: list[str] = []

        async def failing() -> None:
            try:
                await asyncio.sleep(0)
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                seen.append("cancelled")
                watch.work(3)
                raise ValueError("at the end") from None

        time, task = watch.count(failing())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(ValueError, match="at the end"):
            await task
        assert seen == ["cancelled"]
        assert time.taken_s == 3

    run(scenario)


def test_a_handler_sees_what_it_awaits_fail() -> None:
    async def scenario(watch: Stopwatch) -> None:
        async def fail() -> None:
            raise KeyError("no")

        async def handler() -> str:
            with pytest.raises(KeyError):
                await asyncio.ensure_future(fail())
            return "went on"

        _, task = watch.count(handler())
        assert await task == "went on"

    run(scenario)


def test_where_nothing_is_counted_work_stays_as_it_is() -> None:
    watch = Stopwatch()

    async def work() -> None:
        """Nothing."""

    coroutine = work()
    assert watch.times.counted(coroutine) is coroutine
    coroutine.close()
