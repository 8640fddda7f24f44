"""Which topics match the patterns that consumers subscribe to: looked up by a worker thread, one pattern at a time.

A pattern over all topics of a large cluster takes too long for the event loop, and many of them at once would keep the
workers from syncing partitions.
"""

import asyncio
from collections.abc import Iterable
from concurrent.futures import Executor

from quorate.coordination.groups.topics import ImageTopics
from quorate.kernel.ids import TopicName
from quorate.kernel.pattern import InvalidPattern, compile_pattern

#: Groups keep what was found for them; here it only has to last until it is handed to them.
_KEPT = 16


class TopicPatterns:
    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor
        self._turn = asyncio.Lock()
        self.matches: dict[str, tuple[int, frozenset[TopicName]]] = {}

    async def look_up(self, patterns: Iterable[str], topics: ImageTopics) -> None:
        """Make ``topics`` know what the patterns match; those that are invalid are left to whoever asks for them."""
        for pattern in sorted(patterns):
            async with self._turn:
                if topics.matching(pattern) is None:
                    await self._look_up(pattern, topics)

    async def _look_up(self, pattern: str, topics: ImageTopics) -> None:
        try:
            names = await self._loop.run_in_executor(self._executor, _matching, pattern, topics)
        except InvalidPattern:
            return
        self.matches.pop(pattern, None)
        self.matches[pattern] = (topics.names_version, names)
        while len(self.matches) > _KEPT:
            del self.matches[next(iter(self.matches))]


def _matching(pattern: str, topics: ImageTopics) -> frozenset[TopicName]:
    return frozenset(map(TopicName, compile_pattern(pattern).matching(topics.names)))
