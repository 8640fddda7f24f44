"""Which nodes have just gone, so that nobody is sent to one of them while the cluster is about to say who leads.

A client whose leader died asks for metadata within a millisecond; the cluster needs a few tens to elect the next
leader. An answer that waits for that is worth more than one that names a dead node, which costs the client a whole
backoff. The image stays the only source: this only tells when it is about to change.
"""

import asyncio
from collections.abc import Callable

from quorate.kernel.ids import NodeId

#: How long an answer may wait. Longer than an election takes, shorter than a client notices.
_DOUBT_S = 0.4


class LeaderDoubt:
    def __init__(self, loop: asyncio.AbstractEventLoop, is_live: Callable[[NodeId], bool]) -> None:
        self._loop = loop
        self._is_live = is_live
        #: Live nodes whose connection has ended, with the time until which that is news.
        self._gone_until: dict[NodeId, float] = {}
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def exists(self) -> bool:
        """Whether the image may name a leader that has just gone."""
        if not self._gone_until:
            return False
        now = self._loop.time()
        self._gone_until = {
            node: until for node, until in self._gone_until.items() if until > now and self._is_live(node)
        }
        return bool(self._gone_until)

    def peer_lost(self, node_id: NodeId) -> None:
        if node_id not in self._gone_until and self._is_live(node_id):
            self._gone_until[node_id] = until = self._loop.time() + _DOUBT_S
            self._loop.call_at(until, self._grow_old, node_id, until)

    def peer_back(self, node_id: NodeId) -> None:
        self._gone_until.pop(node_id, None)
        self.look_again()

    def _grow_old(self, node_id: NodeId, until: float) -> None:
        # Not by the clock: a timer may be early by the last digit of its time, and those who wait have no other.
        if self._gone_until.get(node_id) == until:
            del self._gone_until[node_id]
        self.look_again()

    def look_again(self) -> None:
        """The image, or what is known of the peers, has changed."""
        if self._waiting and not self.exists:
            waiting, self._waiting = self._waiting, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def end(self) -> None:
        """Return when the image names nobody who has just gone, or it has taken too long."""
        while self.exists:
            future = self._loop.create_future()
            self._waiting.append(future)
            await future
