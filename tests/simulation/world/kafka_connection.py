"""A bare Kafka connection for scenarios: sends requests, matches the answers in order."""

import asyncio
from collections import deque
from struct import Struct
from typing import TypeVar, cast

from quorate.protocol.frames import decode_response, encode_request
from quorate.protocol.schema import Request, Response

R = TypeVar("R", bound=Response)

_LENGTH = Struct(">i")


class KafkaConnection(asyncio.Protocol):
    """Made with ``open`` on the host that the client runs on."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self._received = bytearray()
        self._waiting: deque[tuple[int, asyncio.Future[bytes]]] = deque()
        self._last_correlation_id = 0
        self._transport: asyncio.Transport
        self.is_open = True

    @classmethod
    async def open(cls, host: str, port: int, client_id: str = "simulated") -> "KafkaConnection":
        _, connection = await asyncio.get_running_loop().create_connection(lambda: cls(client_id), host, port)
        return connection

    async def call(self, request: Request, version: int, response_type: type[R], *, timeout_s: float = 30) -> R:
        """Raises ``ConnectionError`` where the connection ends first, and ``TimeoutError`` where nothing comes."""
        if not self.is_open:
            raise ConnectionResetError("the connection is closed")
        self._last_correlation_id += 1
        correlation_id = self._last_correlation_id
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting.append((correlation_id, answer))
        self._transport.writelines(encode_request(correlation_id, self._client_id, request, version))
        async with asyncio.timeout(timeout_s):
            frame = await answer
        return decode_response(response_type, frame, version)[1]

    def close(self) -> None:
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        while len(received) >= 4 and len(received) >= 4 + (length := _LENGTH.unpack_from(received)[0]):
            frame = bytes(received[4 : 4 + length])
            del received[: 4 + length]
            correlation_id, answer = self._waiting.popleft()
            assert _LENGTH.unpack_from(frame)[0] == correlation_id, "answers out of the order of their requests"
            if not answer.done():
                answer.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        for _, answer in self._waiting:
            if not answer.done():
                answer.set_exception(ConnectionResetError(str(exc or "the connection ended")))
        self._waiting.clear()
