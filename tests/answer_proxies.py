"""Proxies before a broker: it has done what was asked, and the answer is late, or gets lost on its way."""

import random
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tests.peers.child_process import free_port

PRODUCE: Final = 0
_LENGTH = struct.Struct(">i")
_REQUEST_START = struct.Struct(">hhi")  # API key, version, correlation id.
_CORRELATION_ID = struct.Struct(">i")


class AnswerProxy:
    """Passes on requests as they come, and answers as ``_may_pass`` says."""

    def __init__(self, port: int | None = None) -> None:
        self.port = free_port() if port is None else port
        #: Requests that the broker got, by API key.
        self.asked: Counter[int] = Counter()
        self._broker_port = 0
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._sockets: set[socket.socket] = {self._listener}

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def pass_on_to(self, broker_port: int) -> None:
        self._broker_port = broker_port
        threading.Thread(target=self._accept, daemon=True).start()

    def _may_pass(self, api_key: int) -> bool:
        """May take its time. The connection is closed where the answer must not pass."""
        return True

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                return
            self._sockets |= {client, broker}
            api_keys: dict[int, int] = {}  # By correlation id, of the requests under way.
            for work in (self._pass_requests, self._pass_answers):
                threading.Thread(target=_until_closed, args=(work, client, broker, api_keys), daemon=True).start()

    def _pass_requests(self, client: socket.socket, broker: socket.socket, api_keys: dict[int, int]) -> None:
        while True:
            frame = _read_frame(client)
            api_key, _, correlation_id = _REQUEST_START.unpack_from(frame)
            api_keys[correlation_id] = api_key
            broker.sendall(_LENGTH.pack(len(frame)) + frame)
            self.asked[api_key] += 1

    def _pass_answers(self, client: socket.socket, broker: socket.socket, api_keys: dict[int, int]) -> None:
        while True:
            frame = _read_frame(broker)
            (correlation_id,) = _CORRELATION_ID.unpack_from(frame)
            if not self._may_pass(api_keys.pop(correlation_id)):
                return
            client.sendall(_LENGTH.pack(len(frame)) + frame)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in tuple(self._sockets):
            _close(each)


class LossyProxy(AnswerProxy):
    """Closes the connection instead of passing on the answer, for ``share`` of the produce requests."""

    def __init__(self, *, seed: int = 1) -> None:
        super().__init__()
        self.share = 0.0
        self.lost = 0
        self._random = random.Random(seed)

    def _may_pass(self, api_key: int) -> bool:
        if api_key != PRODUCE or self._random.random() >= self.share:
            return True
        self.lost += 1
        return False


class HoldingProxy(AnswerProxy):
    """Holds back the answers of some APIs until they are released, and with them all that follow on the connection."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        #: Answers that came from the broker, by API key, held back or not.
        self.answered: Counter[int] = Counter()
        self._held: set[int] = set()
        self._changed = threading.Condition()

    def hold(self, api_key: int) -> None:
        with self._changed:
            self._held.add(api_key)

    def release(self, *api_keys: int) -> None:
        with self._changed:
            self._held.difference_update(api_keys)
            self._changed.notify_all()

    def _may_pass(self, api_key: int) -> bool:
        self.answered[api_key] += 1
        with self._changed:
            self._changed.wait_for(lambda: api_key not in self._held)
        return True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(*self._held)
        super().__exit__(kind, error, trace)


def _until_closed(
    work: Callable[[socket.socket, socket.socket, dict[int, int]], None],
    client: socket.socket,
    broker: socket.socket,
    api_keys: dict[int, int],
) -> None:
    with suppress(OSError):
        work(client, broker, api_keys)
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
