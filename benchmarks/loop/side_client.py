"""A client in a process of its own that keeps asking every node something cheap, and notes how long answers take."""

import multiprocessing
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from statistics import median
from types import TracebackType
from typing import Self

import msgspec

from benchmarks import wire

_API_VERSIONS, _API_VERSIONS_VERSION = 18, 0
_INTERVAL_S = 0.01


class Answers(msgspec.Struct, frozen=True):
    """In milliseconds. A request that is still open counts with the time that it has waited."""

    worst_ms: float
    median_ms: float


class SideClient:
    """A context manager. One connection a node, one request at a time on each."""

    def __init__(self, addresses: Sequence[tuple[str, int]]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_ask_for_ever, args=(list(addresses), theirs), daemon=True)

    def __enter__(self) -> Self:
        self._process.start()
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.join()

    def take(self) -> Answers:
        """How long answers took since the last call."""
        self._pipe.send(None)
        worst_ms, median_ms = self._pipe.recv()
        return Answers(worst_ms, median_ms)


class _Line:
    """One connection to one node, made anew where the node went away."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._address = address
        self._frame = wire.frame_head(_API_VERSIONS, _API_VERSIONS_VERSION, b"", is_flexible=False)
        self._socket: socket.socket | None = None
        self._buffer = b""
        self.sent_s: float | None = None
        self._next_s = 0.0

    def fileno(self) -> int:
        return -1 if self._socket is None else self._socket.fileno()

    def send_if_due(self, now_s: float, selector: selectors.BaseSelector) -> None:
        if self.sent_s is not None or now_s < self._next_s:
            return
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, 5)
                selector.register(self._socket, selectors.EVENT_READ, self)
            self._socket.sendall(self._frame)
            self.sent_s = now_s
        except OSError:
            self._drop(selector)
            self._next_s = now_s + 0.1

    def receive(self, selector: selectors.BaseSelector) -> float | None:
        """How long the answer took, once all of it is here."""
        assert self._socket is not None
        try:
            piece = self._socket.recv(65536)
        except OSError:
            piece = b""
        if not piece:
            self._drop(selector)
            return None
        self._buffer += piece
        if len(self._buffer) < 4 or len(self._buffer) < 4 + struct.unpack_from(">i", self._buffer)[0]:
            return None
        now_s = time.perf_counter()
        took_s = now_s - (self.sent_s or now_s)
        self._buffer, self.sent_s, self._next_s = b"", None, now_s + _INTERVAL_S
        return took_s

    def _drop(self, selector: selectors.BaseSelector) -> None:
        if self._socket is not None:
            selector.unregister(self._socket)
            self._socket.close()
        self._socket, self.sent_s, self._buffer = None, None, b""


def _ask_for_ever(addresses: Sequence[tuple[str, int]], pipe: Connection) -> None:
    selector = selectors.DefaultSelector()
    selector.register(pipe, selectors.EVENT_READ, None)
    lines = [_Line(address) for address in addresses]
    times: list[float] = []
    while True:
        now_s = time.perf_counter()
        for line in lines:
            line.send_if_due(now_s, selector)
        for key, _ in selector.select(_INTERVAL_S / 2):
            if key.data is not None:
                took_s = key.data.receive(selector)
                times += [] if took_s is None else [took_s]
                continue
            pipe.recv()
            now_s = time.perf_counter()
            waiting = [now_s - line.sent_s for line in lines if line.sent_s is not None]
            pipe.send((max(times + waiting, default=0.0) * 1000, median(times or [0.0]) * 1000))
            times = []
