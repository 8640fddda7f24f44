"""Proving to a broker who this client is: PLAIN and SCRAM over SaslHandshake and SaslAuthenticate.

SCRAM (RFC 5802, RFC 7677, without channel binding) takes three steps: ``first_message``, ``final_message`` of the
server's first, ``verify`` of the server's last, which proves that the server knows the password too.
"""

import hashlib
import hmac
import secrets
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Final

from quorate.client.config import SaslMechanism, SecurityConfig
from quorate.client.connections.connection import Connection
from quorate.client.errors import AuthenticationFailed
from quorate.client.retries import MonotonicClock
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

#: RFC 7677 asks for at least as many, and a server that names fewer may be after the password.
MIN_ITERATIONS: Final = 4096
#: What nobody configures; more would let a false server burn this client's time.
MAX_ITERATIONS: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramError(QuorateError):
    """The server's message is not what SCRAM allows."""


class ScramClient:
    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._expected_signature = b""

    def first_message(self) -> bytes:
        return (_NO_CHANNEL_BINDING + self._first_bare).encode()

    def final_message(self, server_first: bytes) -> bytes:
        """The proof that this client knows the password, for the salt and iterations of the server's first message."""
        attributes = _parse(server_first)
        nonce, salt, iterations = self._read_challenge(attributes)
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, iterations)
        without_proof = f"c={b64encode(_NO_CHANNEL_BINDING.encode()).decode()},r={nonce}"
        signed = f"{self._first_bare},{server_first.decode()},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(key ^ mask for key, mask in zip(client_key, signature, strict=True))
        self._expected_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def verify(self, server_final: bytes) -> None:
        """Raise unless the server's last message proves that it knows the password."""
        attributes = _parse(server_final)
        if "e" in attributes:
            raise ScramError(f"the server refused: {attributes['e']}")
        signature = _from_base64(attributes.get("v", ""))
        if not self._expected_signature or not hmac.compare_digest(signature, self._expected_signature):
            raise ScramError("the server could not prove that it knows the password")

    def _read_challenge(self, attributes: dict[str, str]) -> tuple[str, bytes, int]:
        if "e" in attributes:
            raise ScramError(f"the server refused: {attributes['e']}")
        if "m" in attributes:
            raise ScramError("the server asks for an extension that is not known")
        nonce = attributes.get("r", "")
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramError("the server's nonce does not extend ours")
        iterations = attributes.get("i", "")
        if not iterations.isdecimal() or not MIN_ITERATIONS <= int(iterations) <= MAX_ITERATIONS:
            raise ScramError(f"the server asks for {iterations or 'no'} iterations, at least {MIN_ITERATIONS} are safe")
        return nonce, _from_base64(attributes.get("s", "")), int(iterations)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def _parse(message: bytes) -> dict[str, str]:
    try:
        parts = [part.partition("=") for part in message.decode().split(",")]
    except UnicodeDecodeError:
        raise ScramError("the server's message is not text") from None
    return {name: value for name, _, value in parts}


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except NotBase64:
        raise ScramError("the server's message is not base64 where it must be") from None


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
