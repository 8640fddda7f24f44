"""A proxy before a broker that loses some answers on their way: the broker has done what was asked, nobody hears it."""

import random
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tests.peers.child_process import free_port

PRODUCE: Final = 0
_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")  # API key, version, correlation id.
_CORRELATION_ID = struct.Struct(">i")


class LossyProxy:
    """Closes the connection instead of passing on the answer, for ``share`` of the requests of one API."""

    def __init__(self, *, api_key: int = PRODUCE, seed: int = 1) -> None:
        self.port = free_port()
        self.share = 0.0
        self.lost = 0
        self._api_key = api_key
        self._random = random.Random(seed)
        self._broker_port = 0
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._sockets: set[socket.socket] = {self._listener}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pass_on_to(self, broker_port: int) -> None:
        self._broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                return
            self._sockets |= {client, broker}
            asked: set[int] = set()  # Correlation ids of the requests whose answers may be lost.
            for work in (self._pass_requests, self._pass_answers):
                threading.Thread(target=_until_closed, args=(work, client, broker, asked), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, asked: set[int]) -> None:
        while True:
            frame = _read_frame(client)
            api_key, _, correlation_id = _REQUEST_START.unpack_from(frame)
            if api_key == self._api_key:
                asked.add(correlation_id)
            broker.sendall(_LENGTH.pack(len(frame)) + frame)

    def _pass_answers(self, client: socket.socket, broker: socket.socket, asked: set[int]) -> None:
        while True:
            frame = _read_frame(broker)
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            if correlation_id in asked and self._random.random() < self.share:
                self.lost += 1
                return
            client.sendall(_LENGTH.pack(len(frame)) + frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in tuple(self._sockets):
            _close(each)


def _until_closed(
    work: Callable[[socket.socket, socket.socket, set[int]], None],
    client: socket.socket,
    broker: socket.socket,
    asked: set[int],
) -> None:
    with suppress(OSError):
        work(client, broker, asked)
    _close(client)
    _close(broker)


def _read_frame(connected: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_read_exactly(connected, _LENGTH.size))
    return _read_exactly(connected, length)


def _read_exactly(connected: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        piece = connected.recv(count - len(parts))
        if not piece:
            raise ConnectionResetError("closed by the other end")
        parts += piece
    return bytes(parts)


def _close(connected: socket.socket) -> None:
    with suppress(OSError):
        connected.shutdown(socket.SHUT_RDWR)
    connected.close()
