"""Logging in by hand, step by step."""

import os
from collections.abc import Iterator
from typing import Final

from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.security.sasl.logins import LoginCredentials, new_login
from tests.compat.raw_connection import RawConnection
from tests.compat.security_matrix.names import password_of

NEWEST: Final = 2


def credentials(name: str, password: str | None = None, *, by_token: bool = False) -> LoginCredentials:
    return LoginCredentials(username=name, password=password or password_of(name), by_token=by_token)


def bearer(access_token: str) -> LoginCredentials:
    return LoginCredentials(access_token=access_token)


def log_in(connection: RawConnection, who: LoginCredentials, mechanism: str = "PLAIN") -> SaslAuthenticateResponse:
    """The last answer of the exchange: it may be a refusal."""
    handshake = connection.ask(SaslHandshakeRequest(mechanism=mechanism), 1, SaslHandshakeResponse)
    assert handshake.error_code == 0, handshake
    for answer in exchange(connection, who, mechanism):
        last = answer
    return last


def exchange(connection: RawConnection, who: LoginCredentials, mechanism: str) -> Iterator[SaslAuthenticateResponse]:
    """The answers to the tokens of one login, until one is a refusal or there is nothing left to say."""
    login = new_login(mechanism, who, os.urandom(18).hex())
    token: bytes | None = login.first()
    while token is not None:
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), NEWEST, SaslAuthenticateResponse)
        yield answer
        if answer.error_code:
            return
        token = login.answer(answer.auth_bytes)
