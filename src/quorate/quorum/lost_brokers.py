"""What is answered in the moments after a broker was lost: who leads is uncertain, and where it was is still told.

A client whose leader died asks for metadata within a millisecond; the cluster needs a few tens to elect the next
leader. An answer that waits for that is worth more than one that names a dead node, which costs the client a whole
backoff. The image stays the only source: this only tells when it is about to change.

librdkafka closes everything that belongs to a broker the moment metadata no longer lists it, the partitions on their
way to another broker included, and then waits a second before it asks again. One that is listed a little longer is
left in peace, and its partitions move at once. Nothing is said of it but its address: it leads nothing.
"""

import asyncio
from collections.abc import Callable, Iterable

from quorate.kernel.ids import NodeId
from quorate.kernel.tasks import Notifier
from quorate.metadata.core.image import Broker, MetadataImage

#: How long an answer may wait. Longer than an election takes, shorter than a client notices.
_UNCERTAIN_S = 0.4


class LeadershipUncertainty:
    def __init__(self, loop: asyncio.AbstractEventLoop, is_live: Callable[[NodeId], bool]) -> None:
        self._loop = loop
        self._is_live = is_live
        #: Live nodes whose connection has ended, with the time until which that is news.
        self._lost_until: dict[NodeId, float] = {}
        self._changes = Notifier(loop)

    @property
    def exists(self) -> bool:
        """Whether the image may name a leader whose connection was just lost."""
        if not self._lost_until:
            return False
        now = self._loop.time()
        self._lost_until = {
            node: until for node, until in self._lost_until.items() if until > now and self._is_live(node)
        }
        return bool(self._lost_until)

    def peer_lost(self, node_id: NodeId) -> None:
        if node_id not in self._lost_until and self._is_live(node_id):
            self._lost_until[node_id] = until = self._loop.time() + _UNCERTAIN_S
            self._loop.call_at(until, self._grow_old, node_id, until)

    def peer_back(self, node_id: NodeId) -> None:
        self._lost_until.pop(node_id, None)
        self.look_again()

    def _grow_old(self, node_id: NodeId, until: float) -> None:
        # Not by the clock: a timer may be early by the last digit of its time, and those who wait have no other.
        if self._lost_until.get(node_id) == until:
            del self._lost_until[node_id]
        self.look_again()

    def look_again(self) -> None:
        """The image, or what is known of the peers, has changed."""
        if not self.exists:
            self._changes.notify()

    async def end(self) -> None:
        """Return when the image names nobody who was just lost, or it has taken too long."""
        while self.exists:
            await asyncio.wait([self._changes.next_change])


#: Longer than clients take to move, shorter than a node takes to come back: then a client's backoff is forgotten too.
_LISTED_FOR_S = 3.0


class DepartedBrokers:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._listed_until: dict[NodeId, float] = {}
        self._live: set[NodeId] = set()

    def brokers_changed(self, image: MetadataImage, changed: Iterable[NodeId]) -> None:
        for node_id in changed:
            broker = image.brokers.get(node_id)
            if broker is None:
                self._live.discard(node_id)
                self._listed_until.pop(node_id, None)
            elif broker.is_live:
                self._live.add(node_id)
                self._listed_until.pop(node_id, None)
            elif node_id in self._live:  # One that has only just registered is nobody's leader yet.
                self._live.discard(node_id)
                self._listed_until[node_id] = self._loop.time() + _LISTED_FOR_S

    def still_listed(self, image: MetadataImage) -> list[Broker]:
        if not self._listed_until:
            return []
        now = self._loop.time()
        self._listed_until = {node: until for node, until in self._listed_until.items() if until > now}
        return [image.brokers[node] for node in self._listed_until if node in image.brokers]
