"""Small answers that come later, without a task: whatever becomes of what they wait for, and of who asked."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from quorate.broker.handlers import APIS
from quorate.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from quorate.protocol.schema import Response
from quorate.transport.connection import CloseConnection
from tests.simulation.simulated_node import SimulatedNode
from tests.unit.coordination.groups.test_coordinator import World

VERSION = 12
PRODUCED = (PartitionProduceResponse(index=1, base_offset=5),)
ANSWER = ProduceResponse(responses=(TopicProduceResponse(name="t", partition_responses=PRODUCED),))
WITHOUT_ROOM = ProduceResponse(throttle_time_ms=1 << 40)

Answer = asyncio.Future[Response | None]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[SimulatedNode, Answer], Awaitable[None]]], None]:
    """A scenario with a node whose Produce waits for one future."""

    def run(scenario: Callable[[SimulatedNode, Answer], Awaitable[None]]) -> None:
        async def script() -> None:
            node = await World().start_node()
            answer: Answer = asyncio.get_running_loop().create_future()
            api = APIS[ProduceRequest.API_KEY]
            waiting = msgspec.structs.replace(api, handle=lambda *_: answer)
            monkeypatch.setitem(APIS, ProduceRequest.API_KEY, waiting)
            await scenario(node, answer)

        asyncio.run(script())

    return run


def test_the_answer_is_sent_when_it_is_there(play: Callable[..., None]) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        reply = node.send(ProduceRequest(), VERSION)
        assert not reply.done()
        assert not isinstance(reply, asyncio.Task)
        answer.set_result(ANSWER)
        assert node.decode(await node.finish(reply), ProduceResponse, VERSION) == ANSWER

    play(scenario)


def test_there_may_be_none(play: Callable[..., None]) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        reply = node.send(ProduceRequest(), VERSION)
        answer.set_result(None)
        assert await node.finish(reply) is None

    play(scenario)


@pytest.mark.parametrize("is_counted", [False, True])
def test_a_failure_ends_the_connection(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture, is_counted: bool
) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        node.node.services.quotas.request_times.is_counted = is_counted
        reply = node.send(ProduceRequest(), VERSION)
        assert isinstance(reply, asyncio.Task) == is_counted
        answer.set_exception(ZeroDivisionError())
        with pytest.raises(CloseConnection):
            await node.finish(reply)

    play(scenario)
    assert ["ZeroDivisionError" in line.message for line in caplog.records if line.levelno == logging.ERROR] == [True]


def test_so_does_an_answer_that_has_no_room(play: Callable[..., None]) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        reply = node.send(ProduceRequest(), VERSION)
        answer.set_result(WITHOUT_ROOM)
        with pytest.raises(CloseConnection):
            await node.finish(reply)

    play(scenario)


def test_who_has_gone_waits_for_nothing(play: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        reply = node.send(ProduceRequest(), VERSION)
        reply.cancel()
        await asyncio.sleep(0)
        assert answer.cancelled()
        await asyncio.sleep(0)

    play(scenario)
    assert not [line for line in caplog.records if line.levelno >= logging.WARNING]


def test_what_is_given_up_elsewhere_is_given_up_here(play: Callable[..., None]) -> None:
    async def scenario(node: SimulatedNode, answer: Answer) -> None:
        reply = node.send(ProduceRequest(), VERSION)
        answer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await node.finish(reply)

    play(scenario)
