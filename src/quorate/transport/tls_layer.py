"""TLS between a plain transport and the protocol that it carries: bytes of one side in, bytes of the other side out.

To its transport it is the protocol, to the protocol inside it is the transport. The event loops have such a layer too;
this one also tells the other end why its handshake failed (their alerts are lost), ends one that does not get on, and
reads into one memory that all connections share, as no read waits for another.

**What the other end can make of it.** Records that carry nothing cost as much as others: changes of keys (TLS 1.3) a
hundred times their bytes, and each is answered. So nothing is read while it does not take what it is sent, no turn of
the loop decrypts for longer than it may, and OpenSSL is given little at once, as it keeps that much memory.
"""

import asyncio
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, cast

from quorate.kernel.ports import Buffer

#: Of encrypted bytes at once: what one read takes from the socket.
ENCRYPTED_READ_BYTES: Final = 256 * 1024
#: Of them, what OpenSSL is given at once; of an answer, what it encrypts before the socket is given it. Each connection
#: keeps as much memory, twice.
_PIECE_BYTES: Final = 32 * 1024
#: Who has not finished its handshake has not much to say.
_HANDSHAKE_READ_BYTES: Final = 16 * 1024
#: Of one turn of the loop. The piece that is begun is done with in any case.
_TURN_S: Final = 0.01
CLOSED_EARLY: Final = "it closed the connection before the handshake was done"
OUT_OF_TIME: Final = "it did not finish the handshake in time"
#: Beyond it the protocol inside writes no more: two of its chunks, so that one is encrypted while another leaves.
_HIGH_WATER_BYTES: Final = 512 * 1024
_NOTHING: Final = memoryview(b"")


def _at_once(step: Callable[[], None]) -> None:
    step()


class TlsLayer(asyncio.BufferedProtocol, asyncio.Transport):
    def __init__(
        self,
        inside: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        memory: memoryview,
        *,
        timeout_s: float,
        on_handshake_ended: Callable[[str | None], None],
        is_client: bool = False,
        ask_for_turn: Callable[[Callable[[], None]], None] = _at_once,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        """``on_handshake_ended`` is told, once, why there is no connection, of which ``inside`` never hears; or None.

        ``memory`` may be that of other layers too. A client begins the handshake. ``ask_for_turn`` calls a step of it
        when it is due.
        """
        super().__init__()
        self._inside = inside
        self._context = context
        self._memory = memory
        self._timeout_s = timeout_s
        self._on_handshake_ended = on_handshake_ended
        self._is_client = is_client
        self._ask_for_turn = ask_for_turn
        self._now = now
        #: What was read and OpenSSL has not been given yet.
        self._unfed = _NOTHING
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=not is_client)
        self._deadline: asyncio.TimerHandle | None = None
        self._has_transport = False
        self._is_open = False
        #: What came after the handshake and is no TLS, such as that the other end does not accept what it was shown.
        self._broken_by: Exception | None = None
        self._has_failed = False
        self._closing = False
        #: By the protocol inside, by a client that takes nothing, until a handshake has its turn.
        self._reading_paused = False
        self._writing_paused = False
        self._waits_for_turn = False
        self._plain_paused = False
        self._delivery: asyncio.Handle | None = None

    # The protocol of the plain transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._plain = cast(asyncio.Transport, transport)
        self._has_transport = True
        if self._closing:
            self._plain.abort()
            return
        self._plain.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.call_later(self._timeout_s, self._give_up)
        if self._is_client:
            self._shake_hands()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._memory if self._is_open else self._memory[:_HANDSHAKE_READ_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closing or self._has_failed:
            return  # What still comes is not wanted.
        if self._is_open:
            read = self._memory[:nbytes]
            self._unfed = memoryview(b"".join((self._unfed, read))) if self._unfed else read
            self._deliver()
            return
        self._incoming.write(self._memory[:nbytes])
        self._waits_for_turn = True
        self._ask_for_turn(self._go_on)
        self._update_plain()

    def eof_received(self) -> bool | None:
        if self._is_open:
            return self._inside.eof_received()
        self._fail(CLOSED_EARLY)
        return False

    def pause_writing(self) -> None:
        # Who dials reads on: were both ends to wait until the other one reads, neither would go on.
        self._writing_paused = not self._is_client
        self._update_plain()
        if self._is_open:
            self._inside.pause_writing()

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._is_open:
            self._inside.resume_writing()
            self._deliver_soon()
        self._update_plain()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        self._unfed = _NOTHING
        self._stop_timers()
        if self._is_open:
            self._inside.connection_lost(exc or self._broken_by)
        else:
            self._fail(CLOSED_EARLY)

    # The transport of the protocol inside.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        match name:
            case "sslcontext":
                return self._context
            case "ssl_object":
                return self._tls
            case _:
                return self._plain.get_extra_info(name, default)

    def write(self, data: Buffer) -> None:
        if self._closing:
            return
        view = memoryview(data)
        try:
            for start in range(0, len(view), _PIECE_BYTES):
                self._encrypt(view[start : start + _PIECE_BYTES])
                self._send()
        except ssl.SSLError:
            self.abort()

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        # A buffer by itself would be a record by itself.
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        self._stop_timers()
        with suppress(ssl.SSLError, OSError, ValueError):
            self._tls.unwrap()  # Says that it ends; that the other end says the same is not waited for.
        self._send()
        self._plain.close()

    def abort(self) -> None:
        self._closing = True
        self._has_failed = not self._is_open
        self._stop_timers()
        if self._has_transport:
            self._plain.abort()

    def is_closing(self) -> bool:
        return self._closing or self._plain.is_closing()

    def get_write_buffer_size(self) -> int:
        return self._plain.get_write_buffer_size()

    def pause_reading(self) -> None:
        self._reading_paused = True
        self._update_plain()

    def resume_reading(self) -> None:
        self._reading_paused = False
        self._update_plain()
        self._deliver_soon()  # What was read before the pause; nothing else tells of it.

    # What they have to do with each other.

    def _go_on(self) -> None:
        self._waits_for_turn = False
        if self._closing or self._has_failed:
            return
        self._shake_hands()
        if self._is_open:
            self._deliver()
        self._update_plain()

    def _shake_hands(self) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return
        except (ssl.SSLError, OSError, ValueError) as error:
            self._send()  # The alert, which tells the other end.
            self._refuse(error)
            return
        self._send()
        self._stop_timers()
        self._is_open = True
        self._on_handshake_ended(None)
        self._inside.connection_made(self)

    def _refuse(self, error: Exception) -> None:
        self._plain.close()
        self._fail(self._explain(error))

    def _explain(self, error: Exception) -> str:
        return handshake_problem(error)

    def _deliver(self) -> None:
        """Give what has come to the protocol inside, until it wants no more, or others have to have their turn."""
        end_s = self._now() + _TURN_S
        while not (self._reading_paused or self._writing_paused or self._closing):
            room = memoryview(self._inside.get_buffer(-1))
            received, has_ended = self._decrypt(room, end_s)
            self._send()  # Whatever TLS itself has to answer.
            if received and not self._closing:
                self._inside.buffer_updated(received)
            if has_ended and not self.is_closing() and not self._inside.eof_received():
                self.close()
            if received < len(room):
                break
        self._unfed = _NOTHING if self._closing else memoryview(bytes(self._unfed))  # It lay in what others read into.
        if self._unfed and not (self._reading_paused or self._writing_paused):
            self._deliver_soon()
        self._update_plain()

    def _deliver_soon(self) -> None:
        if self._delivery is None and not self._closing:
            self._delivery = self._loop.call_soon(self._deliver_later)

    def _deliver_later(self) -> None:
        self._delivery = None
        self._deliver()

    def _update_plain(self) -> None:
        pause = self._reading_paused or self._writing_paused or self._waits_for_turn or bool(self._unfed)
        if pause == self._plain_paused or self._plain.is_closing():
            return
        self._plain_paused = pause
        if pause:
            self._plain.pause_reading()
        else:
            self._plain.resume_reading()

    def _decrypt(self, room: memoryview, end_s: float) -> tuple[int, bool]:
        """How much of the room was filled, and whether the other end has said that nothing more will come."""
        received = 0
        while received < len(room):
            if not (self._incoming.pending or self._tls.pending() or self._feed(end_s)):
                return received, False
            try:
                count = self._tls.read(len(room) - received, room[received:])
            except ssl.SSLWantReadError:
                self._send()  # Answers to what is no content.
                if not self._feed(end_s):
                    return received, False
                continue
            except ssl.SSLZeroReturnError:
                return received, True
            except ssl.SSLError as error:
                self._broken_by = ConnectionError(self._explain(error))
                self._send()
                self.abort()
                return received, False
            if not count:
                return received, True
            received += cast(int, count)
        return received, False

    def _feed(self, end_s: float) -> bool:
        """Give OpenSSL the next piece of what was read, unless there is none or it is for another turn."""
        if not self._unfed or self._writing_paused or self._now() >= end_s:
            return False
        self._incoming.write(self._unfed[:_PIECE_BYTES])
        self._unfed = self._unfed[_PIECE_BYTES:]
        return True

    def _encrypt(self, view: memoryview) -> None:
        while len(view):
            view = view[self._tls.write(view) :]

    def _send(self) -> None:
        if self._outgoing.pending and not self._plain.is_closing():
            self._plain.write(self._outgoing.read())

    def _give_up(self) -> None:
        self._plain.abort()
        self._fail(OUT_OF_TIME)

    def _fail(self, reason: str) -> None:
        self._stop_timers()
        if not self._has_failed:
            self._has_failed = True
            self._on_handshake_ended(reason)

    def _stop_timers(self) -> None:
        for timer in (self._deadline, self._delivery):
            if timer is not None:
                timer.cancel()
        self._deadline = self._delivery = None


_PROBLEMS: Final = {
    "HTTP_REQUEST": "it speaks HTTP",
    "WRONG_VERSION_NUMBER": "it does not speak TLS; a Kafka client without security.protocol=SSL does not",
    "UNSUPPORTED_PROTOCOL": "no version of TLS is enabled at both ends",
    "NO_SHARED_CIPHER": "no cipher suite is enabled at both ends",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it shows no certificate",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this listener",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of this listener",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this listener",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this listener has expired",
}


def handshake_problem(error: Exception) -> str:
    """Why a handshake failed, as far as OpenSSL tells."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return _PROBLEMS.get(str(reason)) or str(reason or error).lower().replace("_", " ")
