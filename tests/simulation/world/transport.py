"""One end of a connection, as asyncio shows it to a protocol, and what the kernel keeps behind it.

``arrived``, ``room_grew`` and ``timed_out`` are the kernel's side: they run whether the process does or not, and only
queue what the process will see. Everything else runs as code of the host.
"""

import asyncio
import errno
from collections import deque
from collections.abc import Callable, Iterable

from tests.simulation.world.loop import SimulatedLoop
from tests.simulation.world.stream import Packet, Signal, Stream

_MAX_READ_BYTES = 256 * 1024
_DEFAULT_HIGH_WATER_BYTES = 64 * 1024

Data = bytes | bytearray | memoryview


class SimulatedTransport(asyncio.Transport):
    def __init__(
        self, outgoing: Stream, incoming: Stream, sockname: tuple[str, int], peername: tuple[str, int], label: str
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self.label = label
        self._outgoing = outgoing
        self._incoming = incoming
        outgoing.sender = incoming.receiver = self
        self._sockname = sockname
        self._loop: SimulatedLoop
        self._number = 0
        self._protocol: asyncio.BaseProtocol | None = None
        self._connecting: asyncio.Future[asyncio.BaseProtocol] | None = None
        self._factory: Callable[[], asyncio.BaseProtocol]
        #: Set on the passive side until it is accepted: finds who listens.
        self.accept: Callable[[SimulatedTransport], bool] | None = None
        self._unread: deque[Packet] = deque()
        self._read_is_scheduled = False
        self._is_reading = True
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._high_water_bytes = _DEFAULT_HIGH_WATER_BYTES
        self._low_water_bytes = _DEFAULT_HIGH_WATER_BYTES // 4
        self._writing_is_paused = False
        self._ends_writing = False
        self._is_closing = False
        #: The socket is closed: the process knows nothing of it any more.
        self._is_gone = False

    def belong_to(self, loop: SimulatedLoop, factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._loop = loop
        self._factory = factory
        self._number = loop.next_number()
        loop.transports[self._number] = self

    # The kernel's side.

    def connect(self, connecting: "asyncio.Future[asyncio.BaseProtocol]") -> None:
        self._connecting = connecting
        self._outgoing.send(Signal.CONNECT)

    def arrived(self, packet: Packet) -> None:
        if self._is_gone:
            if packet is not Signal.RESET and packet is not Signal.END:
                self._outgoing.send(Signal.RESET)
        elif packet is Signal.CONNECT:
            self._is_gone = self.accept is None or not self.accept(self)
            self._outgoing.send(Signal.RESET if self._is_gone else Signal.ACCEPTED)
            if not self._is_gone:
                self._loop.call_soon(self._open)
        elif packet is Signal.ACCEPTED:
            self._loop.call_soon(self._open)
        elif packet is Signal.RESET and self._protocol is None and self._connecting is not None:
            self._loop.call_soon(self._lose, ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"))
        elif packet is Signal.RESET and self._unsent:
            self._loop.call_soon(self._lose, _reset())
        else:
            self._unread.append(packet)
            self._schedule_read()

    def room_grew(self) -> None:
        if self._unsent and not self._is_gone:
            self._loop.call_soon(self._flush)

    def timed_out(self) -> None:
        if not self._is_gone:
            self._loop.call_soon(self._lose, TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def connect_timed_out(self) -> None:
        if self._protocol is None:
            self.timed_out()

    def process_died(self) -> None:
        """The kernel closes the socket; what it had taken over is still sent."""
        if not self._is_gone:
            self._close_socket()

    def power_lost(self) -> None:
        self._is_gone = True
        self._outgoing.sender_lost_power()

    def break_off(self) -> None:
        """A reset from somewhere between."""
        if not self._is_gone and self._protocol is not None:
            self._unread.append(Signal.RESET)
            self._schedule_read()

    # The process's side.

    def abandon(self) -> None:
        """The caller does not want the connection that it asked for any more."""
        if not self._is_gone:
            self._close_socket()

    def _open(self) -> None:
        if self._is_gone:
            return
        self._protocol = self._factory()
        self._protocol.connection_made(self)
        if self._connecting is not None and not self._connecting.done():
            self._connecting.set_result(self._protocol)
        if self._unread:
            self._schedule_read()

    def _schedule_read(self) -> None:
        if self._is_reading and not self._read_is_scheduled and self._protocol is not None:
            self._read_is_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._read_is_scheduled = False
        if not self._is_reading or self._is_closing or not self._unread:
            return
        packet = self._unread[0]
        if isinstance(packet, bytes):
            self._read_bytes()
        elif packet is Signal.END:
            self._unread.popleft()
            assert isinstance(self._protocol, asyncio.Protocol | asyncio.BufferedProtocol)
            if not self._protocol.eof_received():
                self.close()
        else:
            self._lose(_reset())
        if self._unread:
            self._schedule_read()

    def _read_bytes(self) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = memoryview(protocol.get_buffer(-1))
            data = self._take(len(buffer))
            buffer[: len(data)] = data
            protocol.buffer_updated(len(data))
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(self._take(_MAX_READ_BYTES))

    def _take(self, limit: int) -> bytes:
        assert limit > 0, "a protocol without room"
        unread = self._unread
        first = unread[0]
        if len(unread) == 1 and isinstance(first, bytes) and len(first) <= limit:
            unread.clear()
            self._incoming.taken(len(first))
            return first
        parts: list[bytes] = []
        while unread and limit and isinstance(first := unread[0], bytes):
            if len(first) > limit:
                unread[0] = first[limit:]
                first = first[:limit]
            else:
                unread.popleft()
            parts.append(first)
            limit -= len(first)
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self._incoming.taken(len(data))
        return data

    def write(self, data: Data) -> None:
        if self._ends_writing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_closing or self._is_gone or not data:
            return
        if self._unread and self._unread[-1] is Signal.RESET:
            self._loop.call_soon(self._lose, _reset())
            return
        self._unsent.append(bytes(data))
        self._unsent_bytes += len(data)
        self._push()
        if self._unsent_bytes > self._high_water_bytes and not self._writing_is_paused:
            self._writing_is_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Data]) -> None:
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        if self._is_closing or self._ends_writing:
            return
        self._ends_writing = True
        if not self._unsent:
            self._outgoing.send(Signal.END)

    def can_write_eof(self) -> bool:
        return True

    def _push(self) -> None:
        """Hand to the kernel what it takes."""
        unsent, outgoing = self._unsent, self._outgoing
        while unsent and (room := outgoing.room_bytes) > 0:
            first = unsent.popleft()
            if len(first) > room:
                unsent.appendleft(first[room:])
                first = first[:room]
            self._unsent_bytes -= len(first)
            outgoing.send(first)

    def _flush(self) -> None:
        if self._is_gone or not self._unsent:
            return
        self._push()
        if self._writing_is_paused and self._unsent_bytes <= self._low_water_bytes:
            self._writing_is_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        if self._unsent:
            return
        if self._is_closing:
            self._lose(None)
        elif self._ends_writing:
            self._outgoing.send(Signal.END)

    def close(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            if not self._unsent:
                self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._loop.call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        """The end of the connection, as the process sees it."""
        if self._is_gone:
            return
        if error is None:
            self._close_socket()
        else:
            self._forget_socket()
        if self._protocol is not None:
            self._protocol.connection_lost(error)
        elif self._connecting is not None and not self._connecting.done():
            assert error is not None
            self._connecting.set_exception(error)

    def _close_socket(self) -> None:
        # Linux resets a connection that is closed with something unread; otherwise it says goodbye.
        has_unread = any(isinstance(packet, bytes) for packet in self._unread)
        if has_unread or self._protocol is None:
            self._outgoing.send(Signal.RESET)
        elif not self._ends_writing:
            self._outgoing.send(Signal.END)
        self._forget_socket()

    def _forget_socket(self) -> None:
        self._is_gone = self._is_closing = True
        self._unread.clear()
        self._unsent.clear()
        self._unsent_bytes = 0
        self._loop.transports.pop(self._number, None)

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            if self._unread:
                self._schedule_read()

    def is_reading(self) -> bool:
        return self._is_reading and not self._is_closing

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low_water_bytes, self._high_water_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _DEFAULT_HIGH_WATER_BYTES if low is None else 4 * low
        self._high_water_bytes = high
        self._low_water_bytes = high // 4 if low is None else low

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
