"""The two kinds of connections: the load's over TLS, and a plain one for what is not timed."""

import asyncio
import ssl
import struct
from contextlib import suppress
from functools import partial
from typing import Final, cast

from benchmarks.tls_limit.logs import Logs
from benchmarks.tls_limit.requests import Answer, Requests

#: What one read takes from the socket, as in a node.
READ_BYTES: Final = 256 * 1024
_RECORD_BYTES: Final = 16 * 1024
_SIZE = struct.Struct(">i")


class TlsConnection(asyncio.BufferedProtocol):
    """What is read lies in ``memory``, which all connections share; what is decrypted, in a frame's own place."""

    def __init__(self, context: ssl.SSLContext, logs: Logs, memory: memoryview) -> None:
        self._memory = memory
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_open = False
        self._requests = Requests(logs)
        self._buffer = memoryview(bytearray(_RECORD_BYTES))
        self._filled = 0
        #: Of the frame that has begun; 0 where its size is not known.
        self._end = 0
        self._answers: list[Answer] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        # All at once, as nobody is kept waiting: in pieces, as a node does it for others' sake, takes a tenth longer.
        self._incoming.write(self._memory[:nbytes])
        with suppress(ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            self._take()
        self._answer()

    def _take(self) -> None:
        """Ends with an error of TLS: that it has no more."""
        if not self._is_open:
            try:
                self._tls.do_handshake()
            finally:
                self._transport.write(self._outgoing.read())
            self._is_open = True
        read = self._tls.read
        while True:
            # Never beyond the end of a frame that has begun, so that the next one begins where this one did.
            self._filled += cast(int, read((self._end or _RECORD_BYTES) - self._filled, self._buffer[self._filled :]))
            if not self._end:
                self._look_for_end()
            while self._end and self._filled >= self._end:
                self._serve(self._end)

    def _look_for_end(self) -> None:
        """Of the frame that has begun: from then on there is room for all of it."""
        if self._filled < _SIZE.size:
            self._end = 0
            return
        self._end = _SIZE.size + int(_SIZE.unpack_from(self._buffer)[0])
        if self._end > len(self._buffer):
            larger = memoryview(bytearray(self._end))
            larger[: self._filled] = self._buffer[: self._filled]
            self._buffer = larger

    def _serve(self, end: int) -> None:
        self._answers.append(self._requests.answer(self._buffer[:end]))
        rest = self._filled - end
        if rest:
            self._buffer[:rest] = bytes(self._buffer[end : self._filled])
        self._filled = rest
        self._look_for_end()

    def _answer(self) -> None:
        """All that one read has brought is answered at once. It was written to one partition."""
        if not self._answers:
            return
        answers, self._answers = self._answers, []
        send = partial(self._send, b"".join(answer.frame for answer in answers))
        written = answers[-1].written
        if written is None:
            send()
        else:
            written.when_durable(send)

    def _send(self, frames: bytes) -> None:
        if not self._transport.is_closing():
            self._tls.write(frames)
            self._transport.write(self._outgoing.read())


async def serve_plain(logs: Logs, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One request at a time."""
    requests = Requests(logs)
    while size := await _read_or_nothing(reader, _SIZE.size):
        frame = size + await reader.readexactly(_SIZE.unpack(size)[0])
        answer = requests.answer(memoryview(frame))
        if answer.written is not None:
            durable = asyncio.get_running_loop().create_future()
            answer.written.when_durable(partial(durable.set_result, None))
            await durable
        writer.write(answer.frame)
    writer.close()


async def _read_or_nothing(reader: asyncio.StreamReader, size_bytes: int) -> bytes:
    try:
        return await reader.readexactly(size_bytes)
    except (asyncio.IncompleteReadError, ConnectionError):
        return b""
