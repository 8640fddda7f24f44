"""One connection of the fuzz of the door: with TLS or without, and what goes wrong with the bytes on the way.

TLS is spoken into memory, so that every flight of it can be changed before it is sent.
"""

import asyncio
import socket
import ssl
import struct
from collections.abc import Callable
from contextlib import suppress

from tests.fuzz.pulse import Pulse

_SILENCE_S = 0.3
_SILENCE_BEATS = 10
_TAKEN_WITHIN_S = 1.0
_CONNECTED_WITHIN_S = 20
_RECEIVED_BYTES = 1 << 16
_LINGER_NOT = struct.pack("ii", 1, 0)
_LENGTH = struct.Struct(">i")
_LONGEST_ANSWER = 1 << 22

#: What is sent in place of a flight, piece by piece; the number of the flight is given too.
Mangle = Callable[[int, bytes], list[bytes]]


class LineEnded(Exception):
    """The other end has closed it, or says nothing more."""


def as_it_is(_: int, flight: bytes) -> list[bytes]:
    return [flight]


class Line:
    """Frames, bytes and TLS records to a port. Nothing that the other end does is an error of the line's."""

    def __init__(self, connection: socket.socket, pulse: Pulse, mangle: Mangle = as_it_is) -> None:
        self._socket = connection
        self._pulse = pulse
        self._mangle = mangle
        self._flights = 0
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._left = bytearray()
        self.frames = 0
        self.answers = 0

    @classmethod
    async def open(cls, address: tuple[str, int], pulse: Pulse, mangle: Mangle = as_it_is) -> "Line":
        connection = socket.socket()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
        try:
            async with asyncio.timeout(_CONNECTED_WITHIN_S):
                await asyncio.get_running_loop().sock_connect(connection, address)
        except BaseException:
            connection.close()
            raise
        return cls(connection, pulse, mangle)

    def close(self) -> None:
        self._socket.close()

    def say_no_more(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    async def begin_tls(self, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="127.0.0.1")
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                self._incoming.write(await self._receive())
                continue
            except (ssl.SSLError, ValueError) as error:
                raise LineEnded(str(error)) from None
            await self._flush()
            return

    async def send_frame(self, frame: bytes) -> None:
        self.frames += 1
        await self.send(_LENGTH.pack(len(frame)) + frame)

    async def send(self, content: bytes) -> None:
        """Bytes as they are, inside of TLS where there is TLS."""
        if self._tls is None:
            await self._send_flight(content)
            return
        try:
            for at in range(0, len(content), _RECEIVED_BYTES):
                self._tls.write(content[at : at + _RECEIVED_BYTES])
        except ssl.SSLError as error:
            raise LineEnded(str(error)) from None
        await self._flush()

    async def send_below(self, content: bytes) -> None:
        """Bytes beside TLS, which it knows nothing of."""
        self.frames += 1
        await self._send_pieces([content])

    async def receive_frame(self) -> bytes:
        while True:
            if len(self._left) >= _LENGTH.size:
                (length,) = _LENGTH.unpack_from(self._left)
                if not 0 <= length <= _LONGEST_ANSWER:
                    raise LineEnded("what is answered is no frame")
                if len(self._left) >= _LENGTH.size + length:
                    frame = bytes(self._left[_LENGTH.size : _LENGTH.size + length])
                    del self._left[: _LENGTH.size + length]
                    self.answers += 1
                    return frame
            self._left += await self._receive_content()

    async def _receive_content(self) -> bytes:
        if self._tls is None:
            return await self._receive()
        while True:
            try:
                content = self._tls.read(_RECEIVED_BYTES)
            except ssl.SSLWantReadError:
                await self._flush()
                self._incoming.write(await self._receive())
                continue
            except ssl.SSLError as error:
                raise LineEnded(str(error)) from None
            if not content:
                raise LineEnded("the other end says that it ends")
            return content

    async def _flush(self) -> None:
        if self._outgoing.pending:
            await self._send_flight(self._outgoing.read())

    async def _send_flight(self, flight: bytes) -> None:
        self._flights += 1
        await self._send_pieces(self._mangle(self._flights - 1, flight))

    async def _send_pieces(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            try:
                async with asyncio.timeout(_TAKEN_WITHIN_S):
                    await asyncio.get_running_loop().sock_sendall(self._socket, piece)
            except (OSError, TimeoutError) as error:
                raise LineEnded(str(error)) from None
            if len(pieces) > 1:
                await asyncio.sleep(0)

    async def _receive(self) -> bytes:
        loop = asyncio.get_running_loop()
        began_s, beats = loop.time(), self._pulse.beats
        receiving = loop.create_task(loop.sock_recv(self._socket, _RECEIVED_BYTES))
        try:
            while not receiving.done():
                await asyncio.wait([receiving], timeout=_SILENCE_S / 6)
                is_long = loop.time() - began_s >= _SILENCE_S
                if is_long and (self._pulse.beats - beats >= _SILENCE_BEATS or self._pulse.has_stopped):
                    break
            if not receiving.done():
                raise LineEnded("it has gone silent")
            received = receiving.result()
        except OSError as error:
            raise LineEnded(str(error)) from None
        finally:
            receiving.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await receiving  # The loop looks at the socket until then.
        if not received:
            raise LineEnded("the other end has closed the connection")
        return received
