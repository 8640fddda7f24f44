import asyncio
from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable
from typing import Any

from quorate.kernel.ids import NodeId
from quorate.metadata.store import LeadershipUncertainty

TWO, THREE = NodeId(2), NodeId(3)


class Timers:
    """A loop whose time stands still, and whose timers fire a little early, as the last digit of a float allows."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.now = 1000.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def create_future(self) -> "asyncio.Future[Any]":
        return self._loop.create_future()

    def call_at(self, when: float, callback: Callable[..., object], *args: object) -> TimerHandle | None:
        self.timers.append((when, lambda: callback(*args)))
        return None

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> TimerHandle | None:
        return self.call_at(self.now + delay, callback, *args)

    def fire(self) -> None:
        when, callback = self.timers.pop(0)
        self.now = when - 1e-9
        callback()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_uncertainty_ends_when_the_image_no_longer_counts_on_the_node() -> None:
    async def scenario() -> None:
        live = {TWO, THREE}
        uncertainty = LeadershipUncertainty(asyncio.get_running_loop(), live.__contains__)
        assert not uncertainty.exists
        uncertainty.peer_lost(TWO)
        uncertainty.peer_lost(THREE)
        waiting = asyncio.ensure_future(uncertainty.end())
        await settle()
        live.remove(TWO)
        uncertainty.look_again()
        await settle()
        assert not waiting.done()
        uncertainty.peer_back(THREE)
        await waiting
        assert not uncertainty.exists

    asyncio.run(scenario())


def test_a_node_that_the_image_does_not_count_on_makes_nothing_uncertain() -> None:
    async def scenario() -> None:
        uncertainty = LeadershipUncertainty(asyncio.get_running_loop(), lambda _: False)
        uncertainty.peer_lost(TWO)
        assert not uncertainty.exists
        await uncertainty.end()

    asyncio.run(scenario())


def test_those_who_wait_are_let_go_in_time_also_by_a_timer_that_is_early() -> None:
    async def scenario() -> None:
        timers = Timers(asyncio.get_running_loop())
        uncertainty = LeadershipUncertainty(timers, lambda _: True)  # type: ignore[arg-type]
        uncertainty.peer_lost(TWO)
        waiting = asyncio.ensure_future(uncertainty.end())
        await settle()
        assert not waiting.done()
        timers.fire()
        await settle()
        assert waiting.done()
        await waiting

    asyncio.run(scenario())


def test_a_node_that_is_lost_again_is_in_doubt_for_a_whole_time_again() -> None:
    async def scenario() -> None:
        timers = Timers(asyncio.get_running_loop())
        uncertainty = LeadershipUncertainty(timers, lambda _: True)  # type: ignore[arg-type]
        uncertainty.peer_lost(TWO)
        uncertainty.peer_back(TWO)
        timers.now += 0.2
        uncertainty.peer_lost(TWO)
        timers.fire()
        assert uncertainty.exists
        timers.fire()
        assert not uncertainty.exists

    asyncio.run(scenario())
