"""Proving to a broker who this client is: PLAIN and SCRAM over SaslHandshake and SaslAuthenticate."""

import secrets
from typing import Final

from quorate.client.clock import MonotonicClock
from quorate.client.config import SaslMechanism, SecurityConfig
from quorate.client.connection import Connection
from quorate.client.errors import AuthenticationFailed
from quorate.client.scram import ScramClient, ScramError
from quorate.kernel.errors import ErrorCode
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_HASH_NAMES: Final = {SaslMechanism.SCRAM_SHA_256: "sha256", SaslMechanism.SCRAM_SHA_512: "sha512"}
_NONCE_BYTES: Final = 24
#: Version 0 of the handshake sends tokens outside of Kafka's frames: only brokers before 1.0 need it.
_HANDSHAKE_VERSION: Final = 1
#: A new connection is opened well before the broker ends the old one (KIP-368).
_LIFETIME_USED: Final = 0.8


def authenticate(connection: Connection, security: SecurityConfig, clock: MonotonicClock) -> None:
    """Raises ``AuthenticationFailed`` with the broker's reason."""
    mechanism, username, password = security.sasl_mechanism, security.username, security.password
    assert mechanism is not None
    assert username is not None
    assert password is not None
    _agree_on(connection, mechanism)
    if mechanism is SaslMechanism.PLAIN:
        answer = _exchange(connection, f"\0{username}\0{password}".encode())
    else:
        scram = ScramClient(_HASH_NAMES[mechanism], username, password, secrets.token_urlsafe(_NONCE_BYTES))
        try:
            challenge = _exchange(connection, scram.first_message())
            answer = _exchange(connection, scram.final_message(challenge.auth_bytes))
            scram.verify(answer.auth_bytes)
        except ScramError as error:
            raise AuthenticationFailed(connection.address, str(error)) from None
    if answer.session_lifetime_ms > 0:
        connection.expires_ms = clock.now_ms() + round(answer.session_lifetime_ms * _LIFETIME_USED)


def _agree_on(connection: Connection, mechanism: SaslMechanism) -> None:
    if not connection.versions.supports(SaslHandshakeRequest):
        raise _no_sasl_there(connection, "offers no SASL")
    if not connection.versions.supports(SaslHandshakeRequest, at_least=_HANDSHAKE_VERSION):
        raise AuthenticationFailed(connection.address, "the broker is too old for SASL in Kafka's frames (before 1.0)")
    answer = connection.ask(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, _HANDSHAKE_VERSION)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _no_sasl_there(connection, "takes no SASL on this listener")
    if answer.error_code != ErrorCode.NONE:
        offered = ", ".join(answer.mechanisms) or "none"
        raise AuthenticationFailed(
            connection.address, f"the broker does not offer {mechanism}; its mechanisms: {offered}"
        )


def _no_sasl_there(connection: Connection, what: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        connection.address,
        f"the broker {what}: set protocol to PLAINTEXT or SSL, without SASL's settings, or name a listener with SASL",
    )


def _exchange(connection: Connection, token: bytes) -> SaslAuthenticateResponse:
    version = connection.versions.choose(SaslAuthenticateRequest)
    answer = connection.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse, version)
    if answer.error_code != ErrorCode.NONE:
        raise AuthenticationFailed(connection.address, answer.error_message or f"error {answer.error_code}")
    return answer
