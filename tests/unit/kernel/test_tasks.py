import asyncio
import gc
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quorate.kernel.tasks import Notifier, Superseded, TaskScope, logged_failures, monotonic_ms, unless_superseded

Scenario = Callable[[asyncio.AbstractEventLoop], Coroutine[Any, Any, None]]


def run(scenario: Scenario) -> None:
    async def inside() -> None:
        await scenario(asyncio.get_running_loop())

    asyncio.run(inside())


async def fail_with(error: Exception) -> None:
    raise error


async def settle() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_the_failure_of_a_task_goes_to_the_handler_of_its_scope() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        failures: list[Exception] = []
        scope = TaskScope(loop, failures.append)
        error = RuntimeError("boom")

        scope.spawn(fail_with(error))
        await settle()

        assert failures == [error]
        assert len(scope) == 0

    run(scenario)


def test_tasks_are_cancelled_in_the_order_in_which_they_were_started() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        cancelled: list[int] = []
        scope = TaskScope(loop, lambda error: None)

        async def wait(number: int) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(number)

        for number in range(50):
            scope.spawn(wait(number))
        await settle()
        await scope.close()

        assert cancelled == list(range(50))

    run(scenario)


def test_being_cancelled_is_no_failure_and_a_closed_scope_has_no_tasks() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        failures: list[Exception] = []
        scope = TaskScope(loop, failures.append)
        scope.spawn(asyncio.Event().wait())
        scope.spawn(asyncio.Event().wait())
        await settle()
        assert len(scope) == 2

        await scope.close()

        assert len(scope) == 0
        assert failures == []

    run(scenario)


def test_a_failure_while_the_scope_closes_is_seen_too() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        failures: list[Exception] = []
        scope = TaskScope(loop, failures.append)
        error = OSError("no space left")

        async def fails_when_cancelled() -> None:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise error from None

        scope.spawn(fails_when_cancelled())
        await settle()
        await scope.close()

        assert failures == [error]

    run(scenario)


def test_a_task_can_close_the_scope_that_it_runs_in() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        failures: list[Exception] = []
        scope = TaskScope(loop, failures.append)
        await asyncio.wait([scope.spawn(scope.close())], timeout=5)
        await settle()

        assert len(scope) == 0
        assert failures == []

    run(scenario)


def test_logged_failures_write_one_line_with_the_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        scope = TaskScope(loop, logged_failures(logging.getLogger("quorate.test"), "scrub"))
        scope.spawn(fail_with(ValueError("bad sector")))
        await settle()

    run(scenario)

    (record,) = caplog.records
    assert record.getMessage() == "scrub failed error=bad sector"
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None


def test_all_who_wait_are_woken_by_one_change_and_the_next_change_is_another_one() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        notifier = Notifier(loop)
        first, second = notifier.next_change, notifier.next_change

        notifier.notify()

        assert first.done()
        assert second.done()
        assert not notifier.next_change.done()

    run(scenario)


def test_a_waiter_that_was_cancelled_does_not_keep_the_change_from_the_others() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        notifier = Notifier(loop)
        change = notifier.next_change
        change.cancel()

        notifier.notify()

        assert not notifier.next_change.done()

    run(scenario)


def test_work_that_is_done_in_time_gives_its_result() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        async def work() -> str:
            await asyncio.sleep(0)
            return "answer"

        assert await unless_superseded(loop, work(), Notifier(loop), lambda: True) == "answer"

    run(scenario)


def test_work_goes_on_through_changes_that_do_not_concern_it_and_ends_with_the_one_that_does() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        notifier = Notifier(loop)
        newer = False
        was_cancelled = asyncio.Event()

        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                was_cancelled.set()

        waiting = loop.create_task(unless_superseded(loop, work(), notifier, lambda: newer))
        await settle()
        notifier.notify()
        await settle()
        assert not waiting.done()

        newer = True
        notifier.notify()

        with pytest.raises(Superseded):
            await waiting
        await was_cancelled.wait()

    run(scenario)


def test_an_attempt_that_fails_as_its_caller_is_cancelled_leaves_no_unseen_exception() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        unseen: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        gate = asyncio.Event()

        async def work() -> None:
            await gate.wait()
            raise OSError("connection lost")

        waiting = loop.create_task(unless_superseded(loop, work(), Notifier(loop), lambda: False))
        await settle()
        gate.set()
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait([waiting])
        del waiting
        await settle()
        gc.collect()

        assert unseen == []

    run(scenario)


def test_monotonic_time_is_the_loops() -> None:
    async def scenario(loop: asyncio.AbstractEventLoop) -> None:
        before = loop.time() * 1000
        assert round(before) <= monotonic_ms(loop) <= round(loop.time() * 1000)

    run(scenario)
