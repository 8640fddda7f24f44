"""A plain socket to a node: whole requests through the project's own codecs, or any bytes."""

import itertools
import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from quorate.protocol.frames import decode_response, decode_response_correlation_id, encode_request
from quorate.protocol.schema import Request, Response
from tests.compat.clients.client import DEADLINE_S

AnyResponse = TypeVar("AnyResponse", bound=Response)


class RawConnection:
    def __init__(self, bootstrap: str, *, receive_buffer_bytes: int | None = None, source: str | None = None) -> None:
        """``source`` is the address that it comes from."""
        host, port = bootstrap.split(":")
        self._socket = socket.socket()
        if receive_buffer_bytes is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        if source is not None:
            self._socket.bind((source, 0))
        self._socket.settimeout(DEADLINE_S)
        self._socket.connect((host, int(port)))
        self._correlation_ids = itertools.count(1)

    def ask(self, request: Request, version: int, response_type: type[AnyResponse]) -> AnyResponse:
        """Send a request, and take the next frame for its answer."""
        correlation_id = self.send(request, version)
        answered_id, response = decode_response(response_type, self.receive_frame(), version)
        assert answered_id == correlation_id
        return response

    def send(self, request: Request, version: int) -> int:
        """Send a request; returns its correlation id."""
        correlation_id = next(self._correlation_ids)
        self.send_bytes(encoded_request(request, version, correlation_id))
        return correlation_id

    def send_frame(self, body: bytes) -> None:
        self.send_bytes(struct.pack(">i", len(body)) + body)

    def send_bytes(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive_correlation_id(self) -> int:
        return decode_response_correlation_id(self.receive_frame())

    def receive_frame(self) -> bytes:
        """The next frame without its size."""
        (size,) = struct.unpack(">i", self._receive(4))
        return self._receive(size)

    def is_closed_by_node(self, within_s: float = DEADLINE_S) -> bool:
        """Wait for the end of the connection; False when something else arrives, or nothing in time."""
        self._socket.settimeout(within_s)
        try:
            return self._socket.recv(1) == b""
        except TimeoutError:
            return False
        except ConnectionError:
            return True
        finally:
            self._socket.settimeout(DEADLINE_S)

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _receive(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            part = self._socket.recv(size - len(received))
            if not part:
                raise ConnectionError(f"the node closed the connection after {len(received)} of {size} bytes")
            received += part
        return bytes(received)


def encoded_request(request: Request, version: int, correlation_id: int = 1) -> bytes:
    """A whole request frame, with its size."""
    return b"".join(bytes(part) for part in encode_request(correlation_id, "raw", request, version))
