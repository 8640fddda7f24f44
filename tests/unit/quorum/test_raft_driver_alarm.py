import asyncio
from asyncio import AbstractEventLoop

import pytest
import uvloop

from quorate.quorum.raft_driver import Alarm
from tests.unit.quorum.driven_node import until


@pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("ahead_s", [-1.0, 0.0, 0.0001, 0.01])
def test_an_alarm_knows_when_it_is_due_whatever_its_loop_is(new_loop: type[AbstractEventLoop], ahead_s: float) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        rang = asyncio.Event()
        due_s = loop.time() + ahead_s
        alarm = Alarm(loop, due_s, rang.set)
        assert alarm.due_s == due_s
        await rang.wait()

    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(scenario())


def test_an_alarm_that_is_cancelled_does_not_ring() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        rang = asyncio.Event()
        Alarm(loop, loop.time(), rang.set).cancel()
        await until(loop.time() + 0.01)
        assert not rang.is_set()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
