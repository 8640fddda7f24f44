"""Takes the connections of all listeners: at once, later, or not at all, by Apache Kafka's limits.

A connection from an address that has its number is refused; one beyond the number of all, or the rate, waits. Whatever
the limits are, some connections are kept for clients on the node's own machine, so that nobody is locked out of
changing them back; the least recently used of these makes room for the next.

One beyond the rate of its own address is held back by itself (``transport.held_connections``): nobody waits behind it.

A connection that has to wait is taken from the kernel, whose queue has no order but that of coming, and left unread, so
that clients on this machine get in past it. Where no descriptor is left, nothing is taken for a moment, as the loop
would be told of the same connection again and again.

Handshakes of TLS take turns: each takes up to milliseconds of computing, and strangers ask for it. A hundred that come
at once would be one long turn of the loop; so they queue, and everything else has its turn in between.
"""

import asyncio
import errno
import logging
import socket
import ssl
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum

import msgspec

from quorate.kernel.line_limit import LineLimit
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.transport.connection import FrameHandler, ServerConnection
from quorate.transport.held_connections import ConnectionRates, HeldConnections, NoConnectionRates
from quorate.transport.tls_layer import ENCRYPTED_READ_BYTES, TlsLayer

logger = logging.getLogger(__name__)

#: In one turn of the loop.
_ACCEPTED_AT_ONCE = 64
#: Those beyond it are refused.
_MAX_WAITING = 100
#: How often those that wait are looked at, beside whenever a connection ends.
_LOOK_INTERVAL_S = 0.1
#: How long nothing is taken after no descriptor or memory was left for it.
_PAUSE_S = 0.2
_NOTHING_LEFT = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
#: For clients on this machine, beyond all limits.
RESERVED = 8
_NO_LIMIT = 2**31 - 1
_LINE_INTERVAL_S = 10.0
_OVER_RATE = "connection_creation_rate"
#: A client that has not finished its handshake by then does not mean to.
_HANDSHAKE_TIMEOUT_S = 10.0
#: For handshakes, in one turn of the loop. The one that is begun is done with in any case.
_HANDSHAKES_S = 0.002


class ConnectionCaps(msgspec.Struct, frozen=True, kw_only=True):
    max_connections: int = _NO_LIMIT
    max_per_address: int = _NO_LIMIT
    per_address: Mapping[str, int] = {}
    max_per_second: int = _NO_LIMIT


class Admission(Enum):
    """What becomes of a connection that has just come in."""

    ADMIT = "admit"
    #: One of those that are kept for clients on this machine.
    ADMIT_RESERVED = "admit reserved"
    WAIT = "wait"
    REFUSE = "refuse"


class ConnectionQuotas:
    def __init__(self, caps: Callable[[], ConnectionCaps], descriptors: int | None = None) -> None:
        """``descriptors``: how many connections there can be at all, let in or not."""
        self._caps = caps
        self._descriptors = descriptors
        self._by_address: Counter[str] = Counter()
        self._open = 0
        #: How many may be taken now, up to those of a second.
        self._allowance = float(_NO_LIMIT)
        self._earned_until_s = 0.0

    def is_crowded(self, waiting: int, *, is_local: bool) -> bool:
        """Whether there is no descriptor for one more; the last ones are kept for clients on this machine too."""
        if self._descriptors is None:
            return False
        kept = 0 if is_local else min(RESERVED, self._descriptors // 4)
        return self._open + waiting >= self._descriptors - kept

    def judge(self, address: str, now_s: float, *, is_local: bool) -> tuple[Admission, str]:
        """What to do with a connection, and the config that is the reason where it is not to be taken as any other."""
        caps = self._caps()
        if self._by_address[address] >= caps.per_address.get(address, caps.max_per_address):
            name = "max.connections.per.ip" + (".overrides" if address in caps.per_address else "")
            return (Admission.ADMIT_RESERVED if is_local else Admission.REFUSE), name
        if self._open >= caps.max_connections:
            reason = "max.connections"
        elif not self._is_earned(caps.max_per_second, now_s):
            reason = "max.connection.creation.rate"
        else:
            return Admission.ADMIT, ""
        return (Admission.ADMIT_RESERVED if is_local else Admission.WAIT), reason

    def opened(self, address: str) -> None:
        self._allowance = max(0.0, self._allowance - 1)
        self._open += 1
        self._by_address[address] += 1

    def closed(self, address: str) -> None:
        self._open -= 1
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _is_earned(self, per_second: int, now_s: float) -> bool:
        elapsed_s, self._earned_until_s = now_s - self._earned_until_s, now_s
        if not per_second:
            return False
        self._allowance = min(max(1.0, per_second), self._allowance + elapsed_s * per_second)
        return self._allowance >= 1


class RefusedConnections:
    """The count of connections that were not taken, and the lines that tell of it: one every few seconds at most."""

    def __init__(self) -> None:
        self.count = 0
        self._untold = 0
        self._next_line_s = 0.0

    def note(self, reason: str, address: str, now_s: float) -> str | None:
        """Count it; returns the line to log, or None while another one was told of a moment ago."""
        self.count += 1
        if now_s < self._next_line_s:
            self._untold += 1
            return None
        self._next_line_s = now_s + _LINE_INTERVAL_S
        untold, self._untold = self._untold, 0
        return f"connection refused reason={reason!r} peer={address} count={self.count} untold={untold}"


class Door(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One listener: its sockets, bound, and what makes the frame handler of each connection that comes by them."""

    sockets: Sequence[socket.socket]
    open_connection: Callable[[ServerConnection], FrameHandler]
    #: With what the next handshake is made; None without TLS.
    tls: Callable[[], ssl.SSLContext] | None = None
    name: str = ""


class Acceptor:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        doors: Sequence[Door],
        quotas: ConnectionQuotas,
        make_connection: Callable[[Door], ServerConnection],
        on_crowded: Callable[[], None],
        *,
        rates: ConnectionRates | None = None,
        handshake_timeout_s: float = _HANDSHAKE_TIMEOUT_S,
    ) -> None:
        self._loop = loop
        self._held: HeldConnections[_Accepted] = HeldConnections(
            loop, NoConnectionRates() if rates is None else rates, self._released_by_rate
        )
        self._handshake_timeout_s = handshake_timeout_s
        self._handshakes: set[TlsLayer] = set()
        self._handshake_turns = HandshakeTurns(loop)
        self._failed_handshakes = LineLimit()
        #: What all TLS connections read into.
        self._encrypted = memoryview(bytearray(ENCRYPTED_READ_BYTES if any(door.tls for door in doors) else 0))
        self._sockets = [(each, door) for door in doors for each in door.sockets]
        self._quotas = quotas
        self._make_connection = make_connection
        self._on_crowded = on_crowded
        self.refused = RefusedConnections()
        self._admitted: dict[ServerConnection, str] = {}
        #: Of clients on this machine beyond the limits, the latest last.
        self._reserved: OrderedDict[ServerConnection, None] = OrderedDict()
        self._waiting: deque[_Accepted] = deque()
        self._opening = TaskScope(loop, logged_failures(logger, "opening of an accepted connection"))
        self._look: asyncio.TimerHandle | None = None
        self._pause: asyncio.TimerHandle | None = None

    def start(self, backlog: int) -> None:
        for listening, _ in self._sockets:
            listening.setblocking(False)
            listening.listen(backlog)
        self._watch()

    def close(self) -> None:
        for timer in (self._look, self._pause):
            if timer is not None:
                timer.cancel()
        for listening, _ in self._sockets:
            self._loop.remove_reader(listening.fileno())
            listening.close()
        while self._waiting:
            self._waiting.popleft().socket.close()
        self._held.close()
        for handshake in tuple(self._handshakes):
            handshake.abort()

    def released(self, connection: ServerConnection) -> None:
        """The connection has ended."""
        address = self._admitted.pop(connection, None)
        self._reserved.pop(connection, None)
        if address is not None:
            self._quotas.closed(address)
            self._admit_waiting()

    def _watch(self) -> None:
        self._pause = None
        for listening, door in self._sockets:
            self._loop.add_reader(listening.fileno(), self._accept, listening, door)

    def _accept(self, listening: socket.socket, door: Door) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted = _Accepted(door, *listening.accept())
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                continue  # It has ended already.
            except OSError as error:
                if error.errno in _NOTHING_LEFT:
                    self._take_nothing(error)
                    return
                logger.warning("connection not accepted error=%s", error)
                continue
            self._arrived(accepted)

    def _take_nothing(self, error: OSError) -> None:
        self._tell(error.strerror or str(error), "-")
        self._on_crowded()
        for listening, _ in self._sockets:
            self._loop.remove_reader(listening.fileno())
        self._pause = self._loop.call_later(_PAUSE_S, self._watch)

    def _arrived(self, accepted: "_Accepted") -> None:
        if self._quotas.is_crowded(len(self._waiting) + len(self._held), is_local=accepted.is_local):
            self._refuse(accepted, "no descriptor is left for it")
            self._on_crowded()
            return
        delay_s = self._held.delay_s(accepted.address)
        if delay_s == 0:
            self._judge(accepted)
        elif accepted.is_local and self._make_room_in_reserve():
            self._admit(accepted, is_reserved=True)
        elif not self._held.hold(accepted, delay_s):
            self._refuse(accepted, _OVER_RATE)

    def _released_by_rate(self, accepted: "_Accepted", is_its_turn: bool) -> None:
        if is_its_turn:
            self._judge(accepted)
        else:
            self._refuse(accepted, _OVER_RATE)

    def _judge(self, accepted: "_Accepted") -> None:
        admission, reason = self._quotas.judge(accepted.address, self._loop.time(), is_local=accepted.is_local)
        if admission is Admission.ADMIT_RESERVED and not self._make_room_in_reserve():
            admission, reason = self._quotas.judge(accepted.address, self._loop.time(), is_local=False)
        if admission is Admission.ADMIT and self._waiting:
            admission = Admission.WAIT  # Behind those that came before.
        if admission is Admission.REFUSE or (admission is Admission.WAIT and len(self._waiting) >= _MAX_WAITING):
            self._refuse(accepted, reason or "max.connections")
        elif admission is Admission.WAIT:
            self._waiting.append(accepted)
            self._look_later()
        else:
            self._admit(accepted, is_reserved=admission is Admission.ADMIT_RESERVED)

    def _admit(self, accepted: "_Accepted", *, is_reserved: bool) -> None:
        connection = self._make_connection(accepted.door)
        self._quotas.opened(accepted.address)
        self._admitted[connection] = accepted.address
        if is_reserved:
            self._reserved[connection] = None
        self._opening.spawn(self._open(connection, accepted))

    async def _open(self, connection: ServerConnection, accepted: "_Accepted") -> None:
        tls = accepted.door.tls
        protocol = connection if tls is None else self._handshake(connection, accepted, tls())
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted.socket)
        except OSError as error:
            logger.debug("connection lost before it was opened error=%s", error)
            accepted.socket.close()
            self.released(connection)

    def _handshake(self, connection: ServerConnection, accepted: "_Accepted", context: ssl.SSLContext) -> TlsLayer:
        def ended(reason: str | None) -> None:
            self._handshakes.discard(layer)
            if reason is None:
                return
            self.released(connection)
            untold = self._failed_handshakes.admit(self._loop.time())
            if untold is not None:
                logger.warning(
                    "tls handshake failed listener=%s peer=%s reason=%r untold=%s",
                    accepted.door.name,
                    accepted.address,
                    reason,
                    untold,
                )

        layer = TlsLayer(
            connection,
            context,
            self._encrypted,
            timeout_s=self._handshake_timeout_s,
            on_handshake_ended=ended,
            ask_for_turn=self._handshake_turns.ask,
        )
        self._handshakes.add(layer)
        return layer

    def _admit_waiting(self) -> None:
        while self._waiting:
            accepted = self._waiting[0]
            admission, reason = self._quotas.judge(accepted.address, self._loop.time(), is_local=False)
            if admission is Admission.WAIT:
                break
            self._waiting.popleft()
            if admission is Admission.ADMIT:
                self._admit(accepted, is_reserved=False)
            else:
                self._refuse(accepted, reason)

    def _look_later(self) -> None:
        if self._look is None:
            self._look = self._loop.call_later(_LOOK_INTERVAL_S, self._look_at_waiting)

    def _look_at_waiting(self) -> None:
        self._look = None
        self._admit_waiting()
        if self._waiting:
            self._look_later()

    def _make_room_in_reserve(self) -> bool:
        if len(self._reserved) < RESERVED:
            return True
        quiet = [connection for connection in self._reserved if connection.is_open and connection.is_quiet]
        if not quiet:
            return False
        oldest = min(quiet, key=lambda connection: connection.last_active)
        del self._reserved[oldest]
        oldest.abort("others on this machine need the way in")
        return True

    def _refuse(self, accepted: "_Accepted", reason: str) -> None:
        self._tell(reason, accepted.address)
        accepted.socket.close()

    def _tell(self, reason: str, address: str) -> None:
        line = self.refused.note(reason, address, self._loop.time())
        if line is not None:
            logger.warning(line)


class _Accepted:
    """A connection that the kernel has, and nobody reads from yet."""

    def __init__(self, door: Door, accepted: socket.socket, remote: Sequence[object]) -> None:
        accepted.setblocking(False)
        self.door = door
        self.socket = accepted
        self.address = str(remote[0]).partition("%")[0]
        self.is_local = False
        with suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.is_local = accepted.getsockname()[0] == remote[0]


class HandshakeTurns:
    """Who shakes hands when: a few in a turn of the loop, so that a crowd at the door does not hold up those inside."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float] = time.perf_counter) -> None:
        """``now`` goes on within a turn of the loop, whose own time may stand still."""
        self._loop = loop
        self._now = now
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_due = False

    def ask(self, step: Callable[[], None]) -> None:
        """Have it called soon, after those that were asked for before."""
        self._waiting.append(step)
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take)

    def _take(self) -> None:
        self._is_due = False
        end_s = self._now() + _HANDSHAKES_S
        try:
            while self._waiting:
                self._waiting.popleft()()
                if self._now() >= end_s:
                    break
        finally:
            self._schedule()
