"""What the raw load talks over: a plain socket, or TLS with the same version and cipher for both systems.

Encrypted bytes go through memory and not from OpenSSL to the socket: a system call for each record of 16 KiB would cost
the client more than what it measures.
"""

import socket
import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Protocol

from benchmarks.connection import RequestFailed

TLS_VERSION: Final = "TLSv1.3"
#: The first choice of Java and of OpenSSL, so that neither system's defaults are changed.
TLS_CIPHER: Final = "TLS_AES_256_GCM_SHA384"
_HOST: Final = "127.0.0.1"
_TIMEOUT_S: Final = 10.0
_AT_ONCE_BYTES: Final = 256 * 1024


class Stream(Protocol):
    """What a channel needs of a socket that does not block."""

    def fileno(self) -> int: ...
    def sendmsg(self, buffers: Sequence[memoryview], /) -> int: ...
    def recv_into(self, buffer: memoryview, /) -> int: ...
    def close(self) -> None: ...


def connect(address: tuple[str, int], trust: ssl.SSLContext | None) -> Stream:
    """``trust`` is what a listener with TLS has its certificate checked with."""
    plain = socket.create_connection(address, timeout=_TIMEOUT_S)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if trust is not None:
        return TlsStream(plain, trust)
    plain.setblocking(False)
    return plain


class TlsStream:
    def __init__(self, plain: socket.socket, trust: ssl.SSLContext) -> None:
        self._plain = plain
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = trust.wrap_bio(self._incoming, self._outgoing, server_hostname=_HOST)
        self._received = memoryview(bytearray(_AT_ONCE_BYTES))
        #: Encrypted, and not taken by the socket yet.
        self._unsent = memoryview(b"")
        self._shake_hands()
        plain.setblocking(False)

    @property
    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._plain.fileno()

    def close(self) -> None:
        self._plain.close()

    def sendmsg(self, buffers: Sequence[memoryview], /) -> int:
        """How much was taken. What is encrypted is taken, even where the socket has not got it yet."""
        taken = 0
        with suppress(BlockingIOError):
            self._send()
            for buffer in buffers:
                for start in range(0, len(buffer), _AT_ONCE_BYTES):
                    taken += self._tls.write(buffer[start : start + _AT_ONCE_BYTES])
                    self._unsent = memoryview(self._outgoing.read())
                    self._send()
        return taken

    def recv_into(self, buffer: memoryview, /) -> int:
        """All that one read brings, for which there has to be room: no poll tells of what is left."""
        count = self._plain.recv_into(self._received)
        if not count:
            return 0
        self._incoming.write(self._received[:count])
        taken = 0
        with suppress(ssl.SSLWantReadError):
            while taken < len(buffer):
                taken += _count(self._tls.read(len(buffer) - taken, buffer[taken:]))
            raise RequestFailed(f"the system sent more than the {len(buffer)} bytes that there is room for")
        if not taken:
            raise BlockingIOError  # Of a record that has come in part.
        return taken

    def _send(self) -> None:
        while self._unsent:
            self._unsent = self._unsent[self._plain.send(self._unsent) :]

    def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self._plain.sendall(self._outgoing.read())
                self._incoming.write(self._plain.recv(_AT_ONCE_BYTES))
        self._plain.sendall(self._outgoing.read())
        cipher = self._tls.cipher()
        if cipher is None or (cipher[1], cipher[0]) != (TLS_VERSION, TLS_CIPHER):
            raise RequestFailed(f"TLS negotiated {cipher}, not {TLS_VERSION} with {TLS_CIPHER}")


def _count(read: object) -> int:
    assert isinstance(read, int), "a read into a buffer tells how much it read"
    if not read:
        raise RequestFailed("the connection was closed in the middle of the load")
    return read
