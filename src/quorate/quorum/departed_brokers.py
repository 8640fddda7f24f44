"""Brokers that have just been fenced, which clients are still told of for a while.

librdkafka closes everything that belongs to a broker the moment metadata no longer lists it, the partitions on their
way to another broker included, and then waits a second before it asks again. One that is listed a little longer is
left in peace, and its partitions move at once. Nothing is said of it but its address: it leads nothing.
"""

import asyncio
from collections.abc import Iterable

from quorate.kernel.ids import NodeId
from quorate.metadata.core.image import Broker, MetadataImage

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
