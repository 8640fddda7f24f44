"""A plain socket beside the transport that owns it: written to directly, and watched for room.

Event loops refuse to watch a descriptor that belongs to a transport, so a duplicate is watched; it exists only while
it is watched, so that a connection needs one descriptor otherwise.
"""

import asyncio
import os
import socket
from collections.abc import Callable


class SocketRoom:
    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, send_buffer_bytes: int) -> None:
        """A bounded send buffer keeps a reply from running far ahead of its reader; -1 leaves it to the system."""
        self._loop = loop
        #: Of the transport: valid until the connection is lost.
        self.descriptor = descriptor
        self._watched: int | None = None
        self._turn: asyncio.Handle | None = None
        if send_buffer_bytes != -1:
            borrowed = socket.socket(fileno=descriptor)
            borrowed.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
            borrowed.detach()

    def watch(self, has_room: Callable[[], None]) -> bool:
        """Call whenever there is room, until ``unwatch``. A long reply fills the socket many times under one watch.

        False where there is no descriptor left to watch with.
        """
        if self._watched is None:
            try:
                self._watched = os.dup(self.descriptor)
            except OSError:
                return False
            self._loop.add_writer(self._watched, has_room)
        return True

    def take_turns(self, goes_on: Callable[[], None]) -> None:
        """Call after whatever else is due now; who watches is called then anyway."""
        if self._watched is None:
            self._turn = self._loop.call_soon(goes_on)

    def unwatch(self) -> None:
        if self._watched is not None:
            self._loop.remove_writer(self._watched)
            os.close(self._watched)
            self._watched = None

    def close(self) -> None:
        self.unwatch()
        if self._turn is not None:
            self._turn.cancel()
