"""A plain socket beside the transport that owns it: written to directly, and watched for room.

Event loops refuse to watch a descriptor that belongs to a transport, so a duplicate is watched. It must be closed when
the connection is lost: until then the peer would not see the end of it.
"""

import asyncio
import os
import socket
from collections.abc import Callable


class SocketRoom:
    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, send_buffer_bytes: int) -> None:
        """A bounded send buffer keeps a reply from running far ahead of its reader; -1 leaves it to the system."""
        self._loop = loop
        self._duplicate = socket.socket(fileno=os.dup(descriptor))
        if send_buffer_bytes != -1:
            self._duplicate.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
        self._watched = False
        self._turn: asyncio.Handle | None = None
        self.descriptor = self._duplicate.fileno()

    def watch(self, has_room: Callable[[], None]) -> None:
        """Call whenever there is room, until ``unwatch``. A long reply fills the socket many times under one watch."""
        if not self._watched:
            self._watched = True
            self._loop.add_writer(self.descriptor, has_room)

    def take_turns(self, goes_on: Callable[[], None]) -> None:
        """Call after whatever else is due now; who watches is called then anyway."""
        if not self._watched:
            self._turn = self._loop.call_soon(goes_on)

    def unwatch(self) -> None:
        if self._watched:
            self._watched = False
            self._loop.remove_writer(self.descriptor)

    def close(self) -> None:
        self.unwatch()
        if self._turn is not None:
            self._turn.cancel()
        self._duplicate.close()
