"""What waits to be sent on one connection to a peer: in order, bounded, and written once in a turn of the loop."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence

from quorate.kernel.buffers import Buffer
from quorate.transport.peers.config import PeerConfig

#: A turn's frames leave in one write up to here; beyond it the transport's water marks are asked in between.
_WRITE_BYTES = 256 * 1024
#: From here on a buffer is written by itself: copying it costs more than a write.
_LARGE_BYTES = 32 * 1024


class PeerOutbox:
    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.WriteTransport, config: PeerConfig) -> None:
        self._loop = loop
        self._transport = transport
        self._config = config
        self._frames: deque[tuple[int, Sequence[Buffer]]] = deque()
        self._queued_bytes = 0
        #: Whether the other end takes less than it is being sent.
        self.is_paused = False
        self._flush_planned = False
        #: All that was ever handed to the transport.
        self.written_bytes = 0

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < self._config.queue_max_bytes and len(self._frames) < self._config.queue_max_messages

    def put(self, frame: Sequence[Buffer]) -> None:
        """Queue a frame; whoever may be told "no" asks ``has_room`` first."""
        size = sum(map(len, frame))
        self._frames.append((size, frame))
        self._queued_bytes += size
        if not self._flush_planned and not self.is_paused:
            self._flush_planned = True
            self._loop.call_soon(self._flush_turn)

    def flush(self) -> None:
        while self._frames and not self.is_paused and not self._transport.is_closing():
            # Not writelines: before Python 3.12.9 and 3.13.2 it lets the transport's buffer grow without a limit.
            for piece in _pieces(self._take()):
                self._transport.write(piece)

    def pause(self) -> None:
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        self.flush()

    def close(self) -> None:
        self._frames.clear()
        self._queued_bytes = 0

    def _flush_turn(self) -> None:
        self._flush_planned = False
        self.flush()

    def _take(self) -> list[Buffer]:
        buffers: list[Buffer] = []
        taken = 0
        while self._frames and (not taken or taken + self._frames[0][0] <= _WRITE_BYTES):
            size, frame = self._frames.popleft()
            buffers.extend(frame)
            taken += size
        self._queued_bytes -= taken
        self.written_bytes += taken
        return buffers


def _pieces(buffers: Sequence[Buffer]) -> Iterator[Buffer]:
    """The same bytes: small buffers joined, large ones as they are."""
    small: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < _LARGE_BYTES:
            small.append(buffer)
            continue
        if small:
            yield b"".join(small)
            small.clear()
        yield buffer
    if small:
        yield b"".join(small)
