"""An answer that the protocol has no room for: the request is answered with an error, or its connection ends."""

import asyncio
import logging

import msgspec
import pytest

from quorate.broker.handlers import APIS
from quorate.broker.large_requests import LARGE_ANSWER_ELEMENTS
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from quorate.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from quorate.protocol.schema import Request, Response
from quorate.transport.connection import CloseConnection
from tests.simulation.simulated_node import SimulatedNode
from tests.unit.coordination.groups.test_coordinator import World

TOO_LONG = FindCoordinatorResponse(coordinators=[Coordinator(key="x" * 40_000)])
MANY_TOO_LONG = FindCoordinatorResponse(coordinators=[Coordinator(key="x" * 40_000)] * (LARGE_ANSWER_ELEMENTS + 1))


def answer_with(patch: pytest.MonkeyPatch, request: type[Request], answer: Response, *, later: bool = False) -> None:
    """Have the node answer so, at once or later."""

    async def answer_later() -> Response:
        return answer

    api = APIS[request.API_KEY]
    handled = msgspec.structs.replace(api, handle=lambda *_: answer_later() if later else answer)
    patch.setitem(APIS, request.API_KEY, handled)


def lines_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "quorate.broker.dispatch"]


@pytest.mark.parametrize("later", [False, True])
def test_an_answer_that_cannot_be_encoded_becomes_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, later: bool
) -> None:
    async def script() -> None:
        node = await World().start_node()
        answer_with(monkeypatch, HeartbeatRequest, HeartbeatResponse(throttle_time_ms=1 << 40), later=later)

        for _ in range(3):
            answer = await node.call(HeartbeatRequest(group_id="g", member_id="m"), 4, HeartbeatResponse)
            assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR

    asyncio.run(script())
    assert [record.message.partition(" api_key=")[0] for record in lines_of(caplog)] == ["answer cannot be encoded"] * 3
    assert not any(record.exc_info for record in lines_of(caplog))


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("answer", [TOO_LONG, MANY_TOO_LONG])
def test_its_connection_ends_where_the_answer_has_no_room_for_an_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Response, later: bool
) -> None:
    async def script() -> None:
        node = await World().start_node()
        answer_with(monkeypatch, FindCoordinatorRequest, answer, later=later)
        with pytest.raises(CloseConnection):
            await sent(node)

    asyncio.run(script())
    assert [bool(record.exc_info) for record in lines_of(caplog)] == [False]


async def sent(node: SimulatedNode) -> None:
    await node.finish(node.send(FindCoordinatorRequest(coordinator_keys=["key"]), 4))


def test_the_traceback_of_a_request_that_fails_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> Response:
        raise ZeroDivisionError

    async def script() -> None:
        node = await World().start_node()
        key = FindCoordinatorRequest.API_KEY
        monkeypatch.setitem(APIS, key, msgspec.structs.replace(APIS[key], handle=fail))
        for _ in range(5):
            with pytest.raises(CloseConnection):
                await sent(node)

    asyncio.run(script())
    assert [bool(record.exc_info) for record in lines_of(caplog)] == [True, False, False, False, False]
    assert all("ZeroDivisionError" in record.message for record in lines_of(caplog))
