"""Sends every request of the matrix under every condition, and says what came of it."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from quorate.protocol.apis import find_api
from quorate.protocol.frames import decode_response
from quorate.protocol.messages.api_versions import ApiVersionsRequest
from tests.compat.raw_connection import RawConnection
from tests.compat.security_matrix.answers import told
from tests.compat.security_matrix.case import Case
from tests.compat.security_matrix.cases import CASES
from tests.compat.security_matrix.conditions import CONDITIONS, Condition
from tests.compat.security_matrix.logins import credentials, log_in
from tests.compat.security_matrix.targets import Target, connect
from tests.compat.security_matrix.world import World

CLOSED: Final = "the connection is closed"
SILENCE: Final = "no answer, and the connection goes on"


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One request in one version, sent by one condition."""

    case: Case
    version: int
    condition: Condition

    @property
    def request_name(self) -> str:
        return f"{self.case.name} v{self.version}"


def cells(cases: tuple[Case, ...] = CASES, conditions: tuple[Condition, ...] = CONDITIONS) -> Iterator[Cell]:
    for case in cases:
        for version in case.versions:
            for condition in conditions:
                if not condition.is_fine or version == case.versions[-1]:
                    yield Cell(case=case, version=version, condition=condition)


def play(world: World, wanted: Iterator[Cell]) -> Iterator[tuple[Cell, Any]]:
    askers = Askers(world.target)
    for cell in wanted:
        if cell.case.before is not None:
            cell.case.before(world)
        yield cell, askers.outcome(world, cell)
    askers.close()


class Askers:
    """The connections of all conditions, each with its login; made anew after a node has ended one."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._connections: dict[str, RawConnection] = {}

    def outcome(self, world: World, cell: Cell) -> Any:
        connection = self._connections.get(cell.condition.name)
        if connection is None:
            connection = self._connections[cell.condition.name] = logged_in(self._target, cell.condition)
        try:
            return answer(connection, world, cell.case, cell.version)
        except ConnectionError:
            connection.close()
            del self._connections[cell.condition.name]
            return CLOSED
        except TimeoutError as error:
            raise AssertionError(f"{cell.request_name}, {cell.condition.name}: no answer") from error

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()


def logged_in(target: Target, condition: Condition) -> RawConnection:
    if condition.user is None:
        return connect(target, "PLAINTEXT", condition.host)
    connection = connect(target, "SASL_PLAINTEXT", condition.host)
    answered = log_in(connection, credentials(condition.user))
    assert answered.error_code == 0, answered
    return connection


def answer(connection: RawConnection, world: World, case: Case, version: int) -> Any:
    """What the node says, as plain data. Raises ``ConnectionError`` where it says nothing and hangs up."""
    request = case.make(world, version)
    api = find_api(request.API_KEY)
    assert api is not None
    correlation_id = connection.send(request, version)
    if case.is_unanswered:
        asked_then = connection.send(ApiVersionsRequest(), 0)
        if connection.receive_correlation_id() == asked_then:
            return SILENCE
        raise AssertionError(f"{case.name} was answered")
    answered_id, response = decode_response(api.response_type, connection.receive_frame(), version)
    assert answered_id == correlation_id
    return told(response, version, world.name_of, is_list=case.is_list)
