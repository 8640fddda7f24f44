"""From an address to a connection that is ready for use: TCP, TLS, versions, SASL."""

import ssl
from typing import Final

from quorate import __version__
from quorate.client.clock import MonotonicClock
from quorate.client.config import ClientConfig
from quorate.client.connection import Connection
from quorate.client.errors import ConnectionLost, UnsupportedApi
from quorate.client.receive_buffers import ReceiveBuffers
from quorate.client.sasl import authenticate
from quorate.client.stream import open_stream
from quorate.client.tls import tls_context
from quorate.client.versions import API_VERSIONS_ATTEMPTS, read_versions
from quorate.kernel.address import Address
from quorate.kernel.errors import ErrorCode
from quorate.protocol.codec import decode
from quorate.protocol.errors import ProtocolError
from quorate.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

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
