"""The connections of all listeners: accepts, watches for idle and departed peers, and stops in good order."""

import asyncio
import logging
import select
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

import msgspec

from quorate.transport.acceptor import Acceptor, ConnectionCaps, ConnectionQuotas, Door
from quorate.transport.connection import ConnectionLimits, FrameHandler, RequestDeadline, ServerConnection
from quorate.transport.held_connections import ConnectionRates
from quorate.transport.receive_memory import NO_LIMIT, ReceiveMemory

logger = logging.getLogger(__name__)

_BACKLOG = 1024
#: How often requests that came in part are looked at, while there are any.
_LOOK_INTERVAL_S = 1.0
#: After so many looks that found nobody getting on for want of memory, connections are ended until somebody does.
_STUCK_LOOKS = 3
#: The other end says nothing more. Where the system cannot tell, one that has closed in order is not found.
_SAYS_NO_MORE: Final = getattr(select, "POLLRDHUP", 0)


class ListenerConfig(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    port: int
    idle_timeout_ms: int = 600_000
    #: As many as there are descriptors for, those that wait to be let in counted; more are closed at once.
    most_connections: int | None = None
    #: How long a connection may be left unread until it is looked whether its peer is still there.
    departed_check_ms: int = 5_000
    #: How long a connection may take to log in, where it has to. It holds a descriptor meanwhile.
    login_timeout_ms: int = 30_000
    limits: ConnectionLimits = ConnectionLimits()
    deadline: RequestDeadline = RequestDeadline()
    #: Of requests that came in part or have to wait, over all connections.
    queued_bytes: int = NO_LIMIT
    #: Of answers that clients do not read, over all connections.
    unread_bytes: int = 24 * 1024 * 1024


class Server:
    """Serves the connections of a node, within limits that all listeners share."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        config: ListenerConfig,
        open_connection: Callable[[ServerConnection], FrameHandler],
        caps: Callable[[], ConnectionCaps] = ConnectionCaps,
        on_crowded: Callable[[], None] = lambda: None,
        *,
        rates: ConnectionRates | None = None,
    ) -> None:
        """``open_connection`` makes the frame handler of each connection to the address of the config.

        Where the server is given its doors, connections are limited: ``caps`` is asked at each one, ``on_crowded`` is
        called for each that there is no descriptor for.
        """
        self._loop = loop
        self._config = config
        self._open_connection = open_connection
        self._caps = caps
        self._on_crowded = on_crowded
        self._rates = rates
        self._acceptor: Acceptor | None = None
        self._server: asyncio.Server | None = None
        self._connections: set[ServerConnection] = set()
        self._memory = ReceiveMemory(config.queued_bytes)
        #: How many requests had come whole at the last look.
        self._completed = 0
        #: At how many looks in a row nobody had got on, though some had to wait for memory.
        self._stuck_looks = 0
        self._look: asyncio.TimerHandle | None = None
        self._stopped = False
        self._all_closed: asyncio.Future[None] | None = None
        self._idle_sweep: asyncio.TimerHandle | None = None
        self._departed_sweep: asyncio.TimerHandle | None = None
        self.port = config.port

    async def start(self, doors: Sequence[Door] = ()) -> None:
        """Listen at doors whose sockets are bound already, or on the address of the config."""
        if doors:
            quotas = ConnectionQuotas(self._caps, self._config.most_connections)
            self._acceptor = Acceptor(
                self._loop,
                doors,
                quotas,
                lambda door: self._connection(door.open_connection),
                self._on_crowded,
                rates=self._rates,
            )
            self._acceptor.start(_BACKLOG)
            self.port = doors[0].sockets[0].getsockname()[1]
        else:
            host, port = self._config.host, self._config.port
            make_connection = partial(self._connection, self._open_connection)
            self._server = await self._loop.create_server(make_connection, host, port, backlog=_BACKLOG)
            if self._server.sockets:
                self.port = self._server.sockets[0].getsockname()[1]
        self._schedule_idle_sweep()
        self._schedule_departed_sweep()

    def _connection(self, open_connection: Callable[[ServerConnection], FrameHandler]) -> ServerConnection:
        return ServerConnection(self, open_connection, self._config.limits, self._loop.time, self._memory)

    async def stop(self, grace_ms: int) -> None:
        """Accept nothing new, let requests under way be answered, and cut off what is left after the grace period."""
        self._stopped = True
        if self._idle_sweep is not None:
            self._idle_sweep.cancel()
        if self._departed_sweep is not None:
            self._departed_sweep.cancel()
        if self._look is not None:
            self._look.cancel()
        if self._acceptor is not None:
            self._acceptor.close()
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.end("the node stops")
        if self._connections:
            self._all_closed = self._loop.create_future()
            await asyncio.wait([self._all_closed], timeout=grace_ms / 1000)
        for connection in list(self._connections):
            connection.abort("the node stops")
        await asyncio.sleep(0)

    def connection_opened(self, connection: ServerConnection) -> None:
        self._connections.add(connection)
        if self._stopped:
            connection.end("the node stops")

    def connection_closed(self, connection: ServerConnection, reason: str | None) -> None:
        self._connections.discard(connection)
        if self._acceptor is not None and not self._stopped:
            self._acceptor.released(connection)
        if reason is not None:
            logger.debug("connection closed peer=%s reason=%s", connection.peer_host, reason)
        if self._all_closed is not None and not self._connections and not self._all_closed.done():
            self._all_closed.set_result(None)

    def has_to_look(self) -> None:
        if self._look is None and not self._stopped:
            self._look = self._loop.call_later(_LOOK_INTERVAL_S, self._look_at_connections)

    def _look_at_connections(self) -> None:
        self._look = None
        has_begun = self._look_at_requests()
        has_unread = self._look_at_answers()
        if has_begun or has_unread or self._memory.has_spare:
            self.has_to_look()

    def _look_at_answers(self) -> bool:
        """End connections whose answers are not read: after a long time, or where they hold too much memory."""
        idle_s = self._config.idle_timeout_ms / 1000
        unread_bytes, by_size = 0, []
        has_unread = False
        for connection in list(self._connections):
            size_bytes = connection.unread_bytes()
            unread_s = connection.unread_for_s()
            has_unread = has_unread or connection.is_blocked
            unread_bytes += size_bytes
            if unread_s > idle_s:
                connection.abort("its answers were not read")
            elif unread_s > 0 and size_bytes:
                by_size.append((size_bytes, connection))
        by_size.sort(key=lambda each: each[0])
        while unread_bytes > self._config.unread_bytes and by_size:
            size_bytes, connection = by_size.pop()
            unread_bytes -= size_bytes
            connection.abort("no memory for answers that are not read")
        return has_unread

    def _look_at_requests(self) -> bool:
        """End connections whose requests do not come on; the sooner where others wait for the memory."""
        memory, deadline = self._memory, self._config.deadline
        hurried = memory.has_waiting
        begun = [connection for connection in self._connections if connection.missing_bytes]
        for connection in begun:
            if connection.is_overdue(deadline, hurried=hurried):
                connection.abort("a request did not come in time")
        self._stuck_looks = self._stuck_looks + 1 if hurried and memory.completed == self._completed else 0
        if self._stuck_looks >= _STUCK_LOOKS:
            # Those with the most to come are the ones that the memory is least enough for.
            begun.sort(key=lambda connection: connection.missing_bytes)
            for connection in begun[len(begun) // 2 :]:
                connection.abort("no memory for the rest of a request")
        self._completed = memory.completed
        memory.shrink()
        return bool(begun)

    def _schedule_idle_sweep(self) -> None:
        self._idle_sweep = self._loop.call_later(self._config.idle_timeout_ms / 4000, self._close_idle)

    def _close_idle(self) -> None:
        oldest = self._loop.time() - self._config.idle_timeout_ms / 1000
        for connection in list(self._connections):
            if connection.last_active < oldest and connection.is_quiet:
                connection.end("idle")
        self._schedule_idle_sweep()

    def _schedule_departed_sweep(self) -> None:
        self._departed_sweep = self._loop.call_later(self._config.departed_check_ms / 1000, self._end_departed)

    def _end_departed(self) -> None:
        """What a peer waited for may take hours. Nobody takes it any more, and its connection is free for others.

        So is that of one who does not log in.
        """
        opened_before = self._loop.time() - self._config.login_timeout_ms / 1000
        for connection in [each for each in self._connections if each.is_stranger]:
            if connection.opened_at < opened_before:
                connection.abort("it did not log in in time")
        since = self._loop.time() - self._config.departed_check_ms / 1000
        unread = {connection.unread_fileno(since): connection for connection in self._connections}
        unread.pop(None, None)
        if unread:
            for fileno in departed(fileno for fileno in unread if fileno is not None):
                unread[fileno].abort("the peer has gone")
        self._schedule_departed_sweep()


def departed(filenos: Iterable[int]) -> set[int]:
    """Those of the sockets whose other end has closed or reset the connection. Never blocks.

    A loop tells of that only where it reads, and what has to wait is not read from.
    """
    poll = select.poll()
    for fileno in filenos:
        poll.register(fileno, _SAYS_NO_MORE)  # A reset is told in any case.
    return {fileno for fileno, _ in poll.poll(0)}
