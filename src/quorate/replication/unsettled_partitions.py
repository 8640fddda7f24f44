"""Which replicas are not yet what the metadata image says, and who waits for them."""

import asyncio
from collections.abc import Iterable

from quorate.kernel.ids import PartitionIndex, TopicName

PartitionName = tuple[TopicName, PartitionIndex]


class UnsettledPartitions:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._by_topic: dict[TopicName, set[PartitionIndex]] = {}
        #: Those who wait for a topic, or with None for all of them.
        self._waiting: dict[TopicName | None, list[asyncio.Future[None]]] = {}

    def __bool__(self) -> bool:
        return bool(self._by_topic)

    def add(self, names: Iterable[PartitionName]) -> None:
        for topic, index in names:
            self._by_topic.setdefault(topic, set()).add(index)

    def settle(self, name: PartitionName) -> bool:
        """Whether the replica was unsettled until now."""
        topic, index = name
        indexes = self._by_topic.get(topic)
        if indexes is None or index not in indexes:
            return False
        indexes.remove(index)
        if not indexes:
            del self._by_topic[topic]
            self._wake(topic)
            if not self._by_topic:
                self._wake(None)
        return True

    async def wait_for(self, topics: Iterable[TopicName], timeout_s: float) -> None:
        """Return when all of the topics are settled, or after the time."""
        futures = [self._future(topic) for topic in topics if topic in self._by_topic]
        if futures:
            await asyncio.wait(futures, timeout=timeout_s)

    async def wait_for_all(self) -> None:
        if self._by_topic:
            await self._future(None)

    def _future(self, topic: TopicName | None) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.setdefault(topic, []).append(future)
        return future

    def _wake(self, topic: TopicName | None) -> None:
        for future in self._waiting.pop(topic, ()):
            if not future.done():
                future.set_result(None)
