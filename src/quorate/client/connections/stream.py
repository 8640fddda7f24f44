"""Bytes to and from one broker, each operation with its deadline; plain or through TLS.

The socket never blocks: waiting happens in ``poll``, so that a sender and a receiver in different threads each keep
their own deadline. An OpenSSL connection must not be entered by two threads at once, so a lock is held around each
call into it, and never while waiting.
"""

import select
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from quorate.client.errors import AuthenticationFailed, BrokerUnreachable, ConnectionLost
from quorate.client.retries import MonotonicClock
from quorate.kernel.address import Address
from quorate.kernel.ports import Buffer

# The kernel's IOV_MAX is 1024: a request with more buffers goes out in several writes.
MAX_BUFFERS_PER_WRITE = 1024
_NO_WORD = "the broker closed it without a word, as a listener with TLS does where the client has none"


class DeadlinePassed(Exception):
    """The bytes did not come or go in time. The stream may have stopped inside a frame: it is of no more use."""


class Stream:
    def __init__(self, connected: socket.socket, address: Address, clock: MonotonicClock) -> None:
        connected.setblocking(False)
        self._socket = connected
        self._address = address
        self._clock = clock
        self._is_tls = isinstance(connected, ssl.SSLSocket)
        #: Whether the broker has said anything at all.
        self._has_answered = self._is_tls
        self._entering: AbstractContextManager[object] = threading.Lock() if self._is_tls else nullcontext()

    @property
    def address(self) -> Address:
        return self._address

    def fileno(self) -> int:
        return self._socket.fileno()

    def has_buffered_bytes(self) -> bool:
        """Bytes that TLS has already taken from the socket: ``poll`` does not see them."""
        if not isinstance(self._socket, ssl.SSLSocket):
            return False
        with self._entering:
            return self._socket.pending() > 0

    def receive_into(self, view: memoryview, deadline_ms: int) -> None:
        """Fill the whole view."""
        while view:
            count = self._receive_some(view, deadline_ms)
            view = view[count:]

    def send(self, buffers: Sequence[Buffer], deadline_ms: int) -> None:
        """Send all of the buffers, one after the other."""
        if self._is_tls:
            # One TLS record per send: small buffers are joined, records of more than 16 KiB are split by OpenSSL.
            buffers = [b"".join(buffers)]
        remaining = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
        while remaining:
            count = self._send_some(remaining[:MAX_BUFFERS_PER_WRITE], deadline_ms)
            while remaining and count >= len(remaining[0]):
                count -= len(remaining.pop(0))
            if count:
                remaining[0] = remaining[0][count:]

    def close(self) -> None:
        """End the connection, and wake whoever waits for it."""
        with suppress(OSError):  # The peer was first.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _receive_some(self, view: memoryview, deadline_ms: int) -> int:
        while True:
            try:
                with self._entering:
                    count = self._socket.recv_into(view)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._wait(select.POLLIN, deadline_ms)
            except ssl.SSLWantWriteError:
                self._wait(select.POLLOUT, deadline_ms)
            except OSError as error:
                raise _failure(self._address, error) from error
            else:
                if count == 0:
                    raise ConnectionLost(self._address, "the broker closed it" if self._has_answered else _NO_WORD)
                self._has_answered = True
                return count

    def _send_some(self, buffers: Sequence[memoryview], deadline_ms: int) -> int:
        while True:
            try:
                with self._entering:
                    return self._socket.send(buffers[0]) if self._is_tls else self._socket.sendmsg(buffers)
            except (BlockingIOError, ssl.SSLWantWriteError):
                self._wait(select.POLLOUT, deadline_ms)
            except ssl.SSLWantReadError:
                self._wait(select.POLLIN, deadline_ms)
            except OSError as error:
                raise _failure(self._address, error) from error

    def _wait(self, events: int, deadline_ms: int) -> None:
        file_number = self._socket.fileno()
        if file_number < 0:
            raise ConnectionLost(self._address, "it was closed")
        waiter = select.poll()
        waiter.register(file_number, events)
        remaining_ms = deadline_ms - self._clock.now_ms()
        if remaining_ms <= 0 or not waiter.poll(remaining_ms):
            raise DeadlinePassed


def open_stream(
    address: Address, tls: ssl.SSLContext | None, *, connect_timeout_ms: int, clock: MonotonicClock
) -> Stream:
    """Connect and, with a context, shake hands."""
    try:
        connected = socket.create_connection((address.host, address.port), timeout=connect_timeout_ms / 1000)
    except OSError as error:
        raise BrokerUnreachable(address, _describe(error)) from error
    try:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            connected = tls.wrap_socket(connected, server_hostname=address.host)
    except ssl.SSLCertVerificationError as error:
        connected.close()
        raise AuthenticationFailed(address, f"its certificate is refused: {error.verify_message}") from error
    except ssl.SSLEOFError as error:
        connected.close()
        raise BrokerUnreachable(address, "it closed the connection in the TLS handshake") from error
    except ssl.SSLError as error:
        connected.close()
        raise AuthenticationFailed(address, f"the TLS handshake broke off: {error.reason or error}") from error
    except OSError as error:
        connected.close()
        raise BrokerUnreachable(address, _describe(error)) from error
    return Stream(connected, address, clock)


def _failure(address: Address, error: OSError) -> ConnectionLost | AuthenticationFailed:
    # With TLS 1.3 a broker refuses the client's certificate only after the handshake, by an alert.
    if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
        return AuthenticationFailed(address, f"it ended TLS: {error.reason}")
    return ConnectionLost(address, _describe(error))


def _describe(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
