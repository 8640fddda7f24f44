"""One connection that speaks the protocol's messages as they are, in any version, without a client's habits."""

import socket
import struct
from types import TracebackType
from typing import Self, TypeVar

from quorate.protocol.frames import decode_response, encode_request
from quorate.protocol.schema import Request, Response

ResponseType = TypeVar("ResponseType", bound=Response)

_DEADLINE_S = 30.0


class WireClient:
    def __init__(self, bootstrap: str, client_id: str = "wire") -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=_DEADLINE_S)
        self._client_id = client_id
        self._correlation_id = 0

    def call(self, request: Request, version: int, response_type: type[ResponseType]) -> ResponseType:
        self.send(request, version)
        return self.receive(version, response_type)

    def send(self, request: Request, version: int) -> None:
        self._correlation_id += 1
        frame = b"".join(encode_request(self._correlation_id, self._client_id, request, version))
        self._socket.sendall(frame)

    def send_frame(self, frame: bytes) -> None:
        """One that was made elsewhere, with 1 for its correlation id."""
        self._correlation_id = 1
        self._socket.sendall(frame)

    def receive(self, version: int, response_type: type[ResponseType]) -> ResponseType:
        (size,) = struct.unpack(">i", self._read(4))
        correlation_id, response = decode_response(response_type, self._read(size), version)
        assert correlation_id == self._correlation_id
        return response

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            piece = self._socket.recv(size - len(received))
            assert piece, "the node closed the connection"
            received += piece
        return bytes(received)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
