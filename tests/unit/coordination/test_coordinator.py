"""Answers from memory go out when nobody else can coordinate; from the log, or where they bind nobody, at once."""

import asyncio
from collections.abc import Sequence

import pytest

from quorate.coordination.coordinator import confirmed
from quorate.metadata.core.commands import Command
from quorate.metadata.core.decisions import Outcomes
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.store import MetadataStore


class Runner:
    is_over = False


class Store(MetadataStore):
    """Tells whether it is current when the test says so."""

    def __init__(self) -> None:
        super().__init__(MetadataImage())
        self.asked = 0
        self.told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def _carry_out(self, commands: Sequence[Command], *, validate_only: bool) -> Outcomes:
        raise AssertionError("nothing is to be changed")

    async def is_current(self) -> bool:
        self.asked += 1
        return await self.told


def _done(result: str) -> "asyncio.Future[str]":
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    future.set_result(result)
    return future


def _binds(result: str) -> bool:
    return result == "fenced"


@pytest.mark.parametrize(
    ("is_current", "is_over", "given"),
    [(True, False, "fenced"), (False, False, "elsewhere"), (True, True, "elsewhere")],
)
def test_what_binds_waits_for_a_majority_and_for_what_it_has_agreed_on(
    is_current: bool, is_over: bool, given: str
) -> None:
    async def ask() -> None:
        store, runner = Store(), Runner()
        answer = asyncio.create_task(confirmed(_done("fenced"), _binds, runner, store, otherwise="elsewhere"))
        await asyncio.sleep(0)
        assert not answer.done()
        runner.is_over = is_over
        store.told.set_result(is_current)
        assert await answer == given

    asyncio.run(ask())


def test_what_does_not_bind_goes_out_at_once() -> None:
    async def ask() -> None:
        store = Store()
        assert await confirmed(_done("heard"), _binds, Runner(), store, otherwise="elsewhere") == "heard"
        assert store.asked == 0

    asyncio.run(ask())


def test_what_waits_for_the_log_needs_nobody_else() -> None:
    async def ask() -> None:
        store = Store()
        logged: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        answer = asyncio.create_task(confirmed(logged, _binds, Runner(), store, otherwise="elsewhere"))
        await asyncio.sleep(0)
        logged.set_result("fenced")
        assert await answer == "fenced"
        assert store.asked == 0

    asyncio.run(ask())
