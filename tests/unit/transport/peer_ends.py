"""A transport and an owner for one end of a peer connection, with no network behind."""

from typing import Any

from quorate.transport.peers.frames import FrameKind
from quorate.transport.peers.stream import PeerStream

MAX_FRAME_BYTES = 1_000_000


class FakeTransport:
    """Keeps each write; the test says when it is full and what the network takes."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.backlog_bytes = 0
        self.reading = True
        self.closing = False
        self.aborted = False

    def get_extra_info(self, name: str) -> Any:
        return ("127.0.0.1", 5) if name == "peername" else None

    def write(self, data: bytes) -> None:
        self.writes.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.backlog_bytes

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = self.aborted = True


class RecordingOwner:
    def __init__(self) -> None:
        self.frames: list[tuple[FrameKind, bytes]] = []
        self.closed: str | None = None
        self.broken: str | None = None

    def stream_opened(self, stream: PeerStream) -> None:
        self.stream = stream

    def frame_received(self, kind: FrameKind, body: memoryview) -> None:
        self.frames.append((kind, bytes(body)))
        if kind is FrameKind.HELLO:
            self.stream.admit(MAX_FRAME_BYTES)

    def protocol_broken(self, reason: str) -> None:
        self.broken = reason

    def stream_closed(self, reason: str) -> None:
        self.closed = reason


class SteppedLoop:
    """The little of a loop that a stream uses, one turn at a time."""

    def __init__(self) -> None:
        self._soon: list[Any] = []
        self.now_s = 0.0

    def time(self) -> float:
        return self.now_s

    def call_soon(self, callback: Any, *args: Any) -> None:
        self._soon.append((callback, args))

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for callback, args in soon:
            callback(*args)


def feed(stream: PeerStream, data: bytes, largest_read: int = 1 << 30) -> None:
    """Deliver the bytes, in reads of at most this size."""
    position = 0
    while position < len(data):
        room = stream.get_buffer(-1)
        count = min(len(room), largest_read, len(data) - position)
        room[:count] = data[position : position + count]
        stream.buffer_updated(count)
        position += count
