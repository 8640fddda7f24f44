"""Who has not logged in, or no longer: every API, asked where nobody is let in.

All connections of one state are brought there first, and then all ask, so that the matrix waits once and not for each.
"""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.compat.raw_connection import RawConnection
from tests.compat.security_matrix.case import Case
from tests.compat.security_matrix.cases import CASES
from tests.compat.security_matrix.conditions import HOME
from tests.compat.security_matrix.logins import bearer, credentials, log_in
from tests.compat.security_matrix.matrix import CLOSED, answer
from tests.compat.security_matrix.names import ADMIN
from tests.compat.security_matrix.recording import Outcomes
from tests.compat.security_matrix.targets import RENEWED_EVERY_MS, Target, access_token, connect
from tests.compat.security_matrix.world import World

_TOKEN_LASTS_S: Final = 3


def _stranger(target: Target) -> RawConnection:
    return connect(target, "SASL_PLAINTEXT", HOME)


def _versions_told(target: Target) -> RawConnection:
    connection = _stranger(target)
    connection.ask(ApiVersionsRequest(), 0, ApiVersionsResponse)
    return connection


def _mid_login(target: Target) -> RawConnection:
    connection = _stranger(target)
    connection.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1, SaslHandshakeResponse)
    return connection


def _wrong_password(target: Target) -> RawConnection:
    connection = _stranger(target)
    assert log_in(connection, credentials(ADMIN, "wrong")).error_code != 0
    return connection


def _expired_token(target: Target) -> RawConnection:
    connection = _stranger(target)
    assert log_in(connection, bearer(access_token(ADMIN, -60)), "OAUTHBEARER").error_code != 0
    return connection


def _token_ends(target: Target) -> RawConnection:
    connection = _stranger(target)
    assert log_in(connection, bearer(access_token(ADMIN, _TOKEN_LASTS_S)), "OAUTHBEARER").error_code == 0
    return connection


def _session_ends(target: Target) -> RawConnection:
    connection = connect(target, "RENEWED", HOME)
    assert log_in(connection, credentials(ADMIN)).error_code == 0
    return connection


#: Each with how long it takes until it is so.
STATES: Final[dict[str, tuple[Callable[[Target], RawConnection], float]]] = {
    "before the login": (_stranger, 0),
    "before the login, versions told": (_versions_told, 0),
    "in the middle of the login": (_mid_login, 0),
    "after a wrong password": (_wrong_password, 0),
    "after an expired token": (_expired_token, 0),
    "after the token has expired": (_token_ends, _TOKEN_LASTS_S + 0.1),
    "after the session has ended": (_session_ends, RENEWED_EVERY_MS / 1000 + 0.1),
}


def door_cases() -> Iterator[Case]:
    """One of each API."""
    seen = set()
    for case in CASES:
        if case.api not in seen and not case.is_unanswered:
            seen.add(case.api)
            yield case


def ask_at_the_door(world: World) -> Outcomes:
    cases = list(door_cases())
    outcomes: Outcomes = {case.name: {} for case in cases}
    with ThreadPoolExecutor(len(cases)) as asking:
        for state, (reach, lasts_s) in STATES.items():
            connections = [reach(world.target) for _ in cases]
            time.sleep(lasts_s)
            heard = asking.map(lambda connection, case: _outcome(connection, world, case), connections, cases)
            for case, said in zip(cases, heard, strict=True):
                outcomes[case.name][state] = said
    return outcomes


def _outcome(connection: RawConnection, world: World, case: Case) -> Any:
    try:
        said = answer(connection, world, case, case.versions[-1])
    except ConnectionError:
        connection.close()
        return CLOSED
    with suppress(ConnectionError):
        if connection.is_closed_by_node(within_s=0.2):
            return [said, CLOSED]
    connection.close()
    return said
