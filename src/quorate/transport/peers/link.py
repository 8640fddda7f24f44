"""The link to one peer: dialled, kept up, and its end reported with what is known of the cause."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import TypeVar

from quorate.kernel.ids import NodeId
from quorate.transport.peers.config import Address
from quorate.transport.peers.dialled import DialledConnection
from quorate.transport.peers.errors import PeerUnreachable, is_refusal
from quorate.transport.peers.frames import Payload
from quorate.transport.peers.hello import Hello, Rejection
from quorate.transport.peers.local import LocalPeer
from quorate.transport.peers.reconnect import ReconnectSchedule

Answer = TypeVar("Answer")

logger = logging.getLogger(__name__)


class PeerLink:
    def __init__(self, local: LocalPeer, random: Random, peer_id: NodeId, address: Address) -> None:
        self._local = local
        self._loop = local.loop
        self._handler = local.handler
        self._node_id = local.identity.node_id
        self._peer_id = peer_id
        self._schedule = ReconnectSchedule(local.config, random)
        self._connection: DialledConnection | None = None
        self._wake: asyncio.Future[None] | None = None
        #: The link ended, and it is not known yet whether the process did.
        self._loss_unexplained = False
        self.address = address
        #: Whether the last attempt met no process that listens.
        self.is_refusing = False
        self._task = self._loop.create_task(self._keep_up())
        self._task.add_done_callback(self._report_failure)

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_up

    def send(self, payload: Payload) -> bool:
        return self._connection is not None and self._connection.send(payload)

    async def request(self, payload: Payload, timeout_ms: float, read: Callable[[memoryview], Answer]) -> Answer:
        if self._connection is None:
            raise PeerUnreachable(f"node {self._peer_id} is not connected")
        return await self._connection.request(payload, timeout_ms, read)

    def peer_is_up(self) -> None:
        """The peer was heard of: do not wait any longer before dialling it."""
        self._schedule.peer_is_up()
        self._end_pause()

    def drop_stranger(self) -> None:
        """End the connection where the peer would not be let in now."""
        if self._connection is not None:
            self._connection.drop_stranger()

    def close(self, reason: str) -> DialledConnection | None:
        """Stop without a word to the handler; the connection that may still have to say its last, if there is one."""
        self._task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.end(reason)
        return connection

    async def _keep_up(self) -> None:
        while True:
            connection = DialledConnection(self._local, self._peer_id)
            hello = await self._dial(connection)
            if hello is None:
                if self.is_refusing and self._loss_unexplained:
                    self._loss_unexplained = False
                    logger.warning("peer gone node=%s peer=%s", self._node_id, self._peer_id)
                    self._handler.peer_connection_lost(self._peer_id, refused=True)
                await self._pause(self._schedule.attempt_failed())
            else:
                lasted_ms = await self._hold(connection, hello)
                await self._pause(self._schedule.link_ended(lasted_ms))

    async def _dial(self, connection: DialledConnection) -> Hello | None:
        try:
            async with asyncio.timeout(self._local.config.connect_timeout_ms / 1000):
                await self._loop.create_connection(connection.open_stream, self.address.host, self.address.port)
                self.is_refusing = False
                answer = await connection.introduced
        except (OSError, ValueError, OverflowError) as error:  # The last two: an address that cannot be one.
            self.is_refusing = is_refusal(error)
            answer = None
            logger.debug("peer not reached node=%s peer=%s error=%s", self._node_id, self._peer_id, error)
        finally:
            if not connection.is_up:
                connection.abort("not introduced")
        if isinstance(answer, Rejection):
            self._local.refusals.note(f"{self._peer_id}@{self.address}", answer)
            return None
        return answer

    async def _hold(self, connection: DialledConnection, hello: Hello) -> float:
        """Use the connection until it ends; how long it lasted, in milliseconds."""
        began = self._loop.time()
        self._schedule.link_came_up(hello.incarnation)
        self._connection = connection
        self._loss_unexplained = False
        self._local.refusals.forget(f"{self._peer_id}@{self.address}")
        logger.info(
            "peer connected node=%s peer=%s address=%s incarnation=%s",
            self._node_id,
            self._peer_id,
            self.address,
            hello.incarnation,
        )
        self._handler.peer_connected(self._peer_id, hello.incarnation)
        reason = await connection.closed
        self._connection = None
        self._loss_unexplained = True
        logger.warning("peer lost node=%s peer=%s reason=%s", self._node_id, self._peer_id, reason)
        self._handler.peer_connection_lost(self._peer_id, refused=False)
        return (self._loop.time() - began) * 1000

    async def _pause(self, delay_ms: float) -> None:
        if not delay_ms:
            return
        self._wake = self._loop.create_future()
        timer = self._loop.call_later(delay_ms / 1000, self._end_pause)
        try:
            await self._wake
        finally:
            timer.cancel()
            self._wake = None

    def _end_pause(self) -> None:
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _report_failure(self, task: "asyncio.Task[None]") -> None:
        """A handler that raised has stopped this link: that must not pass unseen."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._loop.call_exception_handler({"message": f"link to peer {self._peer_id} failed", "exception": error})
