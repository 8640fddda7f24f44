"""From an address to a connection that is ready for use, and the open connections of a client.

``Connector`` opens one: TCP, TLS, versions, SASL (PLAIN, or SCRAM without channel binding: RFC 5802, RFC 7677).
``Connections`` keeps one for each broker, shared by all partitions and threads, and opens more where the config allows
it.
"""

import hashlib
import hmac
import secrets
import ssl
import threading
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from typing import Final

from quorate import __version__
from quorate.client.config import ClientConfig, SaslMechanism, SecurityConfig
from quorate.client.connections.connection import Connection, ReceiveBuffers
from quorate.client.connections.stream import open_stream, tls_context
from quorate.client.connections.versions import API_VERSIONS_ATTEMPTS, read_versions
from quorate.client.errors import AuthenticationFailed, ConnectionLost, UnsupportedApi
from quorate.client.retries import MonotonicClock
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.protocol.codec import decode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_BODY_POSITION: Final = 4  # After the correlation id: the header of this answer is never flexible (KIP-511).


class Connector:
    """Opens connections. Remembers which ApiVersions each address understood, so that it fails there only once."""

    def __init__(self, config: ClientConfig, buffers: ReceiveBuffers, clock: MonotonicClock) -> None:
        self._config = config
        self._buffers = buffers
        self._clock = clock
        self._tls: ssl.SSLContext | None = tls_context(config.security)
        self._understood: dict[Address, int] = {}

    def open(self, address: Address) -> Connection:
        connection = self._negotiate(address)
        try:
            if self._config.security.protocol.uses_sasl:
                authenticate(connection, self._config.security, self._clock)
        except BaseException:
            connection.close()
            raise
        return connection

    def _negotiate(self, address: Address) -> Connection:
        """Ask for the versions, in ever older words and each time on a new connection, until the broker answers."""
        newest = self._understood.get(address, API_VERSIONS_ATTEMPTS[0])
        attempts = [newest, *(version for version in API_VERSIONS_ATTEMPTS if version < newest)]
        for version in attempts:
            connection = self._connect(address)
            try:
                understood, answer = _ask_versions(connection, version)
            except (ConnectionLost, ProtocolError):
                connection.close()
                if version == attempts[-1]:
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                connection.versions = read_versions(address, answer)
                self._understood[address] = understood
                return connection
        raise AssertionError("there is at least one attempt")

    def _connect(self, address: Address) -> Connection:
        stream = open_stream(address, self._tls, connect_timeout_ms=self._config.connect_timeout_ms, clock=self._clock)
        return Connection(
            stream,
            client_id=self._config.client_id,
            request_timeout_ms=self._config.request_timeout_ms,
            buffers=self._buffers,
            clock=self._clock,
        )


def _ask_versions(connection: Connection, version: int) -> tuple[int, ApiVersionsResponse]:
    """The answer, and the version in which it came."""
    request = ApiVersionsRequest(client_software_name="quorate", client_software_version=__version__)
    frame = connection.wait_for_frame(connection.send(request, ApiVersionsResponse, version))
    if len(frame) < _BODY_POSITION + 2:
        raise ProtocolError("the answer to ApiVersions has no error code")
    # A broker that does not know the version answers in version 0, with its own versions.
    is_refusal = (
        int.from_bytes(frame[_BODY_POSITION : _BODY_POSITION + 2], signed=True) == ErrorCode.UNSUPPORTED_VERSION
    )
    answer = decode(ApiVersionsResponse, frame, 0 if is_refusal else version, _BODY_POSITION)
    if is_refusal and version > 0:
        own = [api for api in answer.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
        return _ask_versions(connection, min(own[0].max_version, version - 1) if own else 0)
    if answer.error_code != ErrorCode.NONE:
        raise UnsupportedApi(connection.address, f"answers ApiVersions with error {answer.error_code}")
    if not answer.api_keys:
        raise ProtocolError("the answer to ApiVersions names no API")
    return version, answer


class _Lane:
    """The connections to one address. The lock is held while one is opened, so that a second user waits for it."""

    def __init__(self) -> None:
        self.opening = threading.Lock()
        self.open: list[Connection] = []


class Connections:
    def __init__(
        self, open_connection: Callable[[Address], Connection], *, per_broker: int, clock: MonotonicClock
    ) -> None:
        self._open_connection = open_connection
        self._per_broker = per_broker
        self._clock = clock
        self._lanes: dict[Address, _Lane] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def to(self, address: Address) -> Connection:
        """The least busy connection to the address; opened if there is none, or all are busy and more are allowed."""
        with self._lock:
            if self._is_closed:
                raise ConnectionLost(address, "this client is closed")
            lane = self._lanes.setdefault(address, _Lane())
        with lane.opening:
            lane.open = [connection for connection in lane.open if self._is_usable(connection)]
            best = min(lane.open, key=lambda connection: connection.in_flight, default=None)
            if best is not None and (best.in_flight == 0 or len(lane.open) >= self._per_broker):
                return best
            connection = self._open_connection(address)
            lane.open.append(connection)
        if self._is_closed:
            self.close()
        return connection

    def open_addresses(self) -> set[Address]:
        """Where a broker answered before, and the connection still stands."""
        with self._lock:
            lanes = list(self._lanes.items())
        return {address for address, lane in lanes if any(connection.is_open for connection in lane.open)}

    def forget(self, address: Address) -> None:
        """Close what leads to an address that no broker has any more, unless an answer is still to come."""
        with self._lock:
            lane = self._lanes.pop(address, None)
        for connection in lane.open if lane is not None else ():
            if connection.in_flight == 0:
                connection.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            lanes, self._lanes = self._lanes, {}
        for lane in lanes.values():
            for connection in lane.open:
                connection.close()

    def _is_usable(self, connection: Connection) -> bool:
        if connection.expires_ms is None or self._clock.now_ms() < connection.expires_ms:
            return connection.is_open
        if connection.in_flight == 0:
            connection.close()
        return False


#: RFC 7677 asks for at least as many, and a server that names fewer may be after the password.
MIN_ITERATIONS: Final = 4096
#: What nobody configures; more would let a false server burn this client's time.
MAX_ITERATIONS: Final = 10_000_000
_NO_CHANNEL_BINDING: Final = "n,,"


class ScramError(QuorateError):
    """The server's message is not what SCRAM allows."""


class ScramClient:
    """The client's side: ``first_message``, ``final_message`` of the server's first, ``verify`` of the server's last.

    The server proves with the last one that it knows the password too.
    """

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
