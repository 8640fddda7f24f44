"""From an address to a connection that is ready for use, and the open connections of a client.

``Connector`` opens one: TCP, TLS, versions, SASL.
``Connections`` keeps one for each broker, shared by all partitions and threads, and opens more where the config allows
it.
"""

import secrets
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from quorate import __version__
from quorate.client.access_tokens import token_source
from quorate.client.config import ClientConfig
from quorate.client.connections.connection import Connection, ReceiveBuffers
from quorate.client.connections.stream import open_stream
from quorate.client.connections.versions import API_VERSIONS_ATTEMPTS, read_versions
from quorate.client.errors import AuthenticationFailed, ConnectionLost, UnsupportedApi
from quorate.client.retries import MonotonicClock
from quorate.client.security_config import SecurityConfig
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.protocol.codec import decode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from quorate.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from quorate.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from quorate.security.sasl.logins import LoginCredentials, new_login
from quorate.security.sasl.outcomes import LoginFailed
from quorate.security.tls import TlsReload, client_context, read_material, stamp_files

_BODY_POSITION: Final = 4  # After the correlation id: the header of this answer is never flexible (KIP-511).


class Connector:
    """Opens connections. Remembers which ApiVersions each address understood, so that it fails there only once."""

    def __init__(self, config: ClientConfig, buffers: ReceiveBuffers, clock: MonotonicClock) -> None:
        self._config = config
        self._buffers = buffers
        self._clock = clock
        self._tls = _Tls(config.security) if config.security.protocol.uses_tls else None
        self._understood: dict[Address, int] = {}

    def open(self, address: Address) -> Connection:
        connection = self._negotiate(address)
        try:
            if self._config.security.protocol.uses_sasl:
                self._authenticate(connection)
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
        context = None if self._tls is None else self._tls.context()
        stream = open_stream(address, context, connect_timeout_ms=self._config.connect_timeout_ms, clock=self._clock)
        return Connection(
            stream,
            client_id=self._config.client_id,
            request_timeout_ms=self._config.request_timeout_ms,
            buffers=self._buffers,
            clock=self._clock,
        )

    def _authenticate(self, connection: Connection) -> None:
        security = self._config.security
        assert security.sasl_mechanism is not None
        has_password = security.sasl_mechanism.has_password
        credentials = LoginCredentials(
            username=security.username,
            password=security.password,
            by_token=security.delegation_token,
            access_token=None if has_password else token_source(security).token_for(connection.address),
            extensions=security.sasl_extensions(),
        )
        authenticate(connection, security.sasl_mechanism.wire_name, credentials, self._clock)


class _Tls:
    """The context of new connections: made anew when a file that it was made of has changed and can be used."""

    def __init__(self, security: SecurityConfig) -> None:
        self._security = security
        self._settings = security.tls_settings()
        stamps = stamp_files(self._settings.paths)
        self._context, digest = self._read()
        self._reload = TlsReload(stamps, digest)
        self._lock = threading.Lock()

    def context(self) -> ssl.SSLContext:
        with self._lock:
            if self._reload.is_due(stamp_files(self._settings.paths)):
                with suppress(QuorateError):  # It is being replaced, or was replaced by nonsense: the old one holds.
                    self._context, digest = self._read()
                    self._reload.in_force(digest)
            return self._context

    def _read(self) -> tuple[ssl.SSLContext, bytes]:
        try:
            material = read_material(self._settings)
            context = client_context(self._settings, material, verify_hostname=self._security.verify_hostname)
        except QuorateError as error:
            raise QuorateError(f"security: {error}") from None
        return context, material.digest


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


_NONCE_BYTES: Final = 24
#: Version 0 of the handshake sends tokens outside of Kafka's frames: only brokers before 1.0 need it.
_HANDSHAKE_VERSION: Final = 1
#: A new connection is opened well before the broker ends the old one (KIP-368).
_LIFETIME_USED: Final = 0.8


def authenticate(connection: Connection, mechanism: str, credentials: LoginCredentials, clock: MonotonicClock) -> None:
    """Raises ``AuthenticationFailed`` with the broker's reason."""
    _agree_on(connection, mechanism)
    try:
        login = new_login(mechanism, credentials, secrets.token_urlsafe(_NONCE_BYTES))
        answer = _exchange(connection, login.first())
        while (token := login.answer(answer.auth_bytes)) is not None:
            answer = _exchange(connection, token)
    except LoginFailed as error:
        raise AuthenticationFailed(connection.address, str(error)) from None
    if answer.session_lifetime_ms > 0:
        connection.expires_ms = clock.now_ms() + round(answer.session_lifetime_ms * _LIFETIME_USED)


def _agree_on(connection: Connection, mechanism: str) -> None:
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
        reason = answer.error_message or f"error {answer.error_code}"
        if reason.startswith("{"):  # What RFC 7628 has a server say of a token is JSON.
            reason = f"the broker refuses the access token: {reason}"
        raise AuthenticationFailed(connection.address, reason)
    return answer
