"""Producer ids for idempotent producers, taken from the metadata in blocks so that most requests need no commit."""

import asyncio

from quorate.kernel.ids import ProducerId
from quorate.metadata.core.commands import AllocateProducerIds
from quorate.metadata.store import MetadataStore

_BLOCK_SIZE = 1000


class ProducerIds:
    def __init__(self, metadata: MetadataStore) -> None:
        self._metadata = metadata
        self._next = 0
        self._end = 0
        self._turn = asyncio.Lock()

    async def take(self) -> ProducerId:
        """An id that nobody in the cluster has had or will have."""
        async with self._turn:
            if self._next == self._end:
                block = await self._metadata.submit_one(AllocateProducerIds(count=_BLOCK_SIZE))
                self._next = block.first
                self._end = self._next + _BLOCK_SIZE
            taken = ProducerId(self._next)
            self._next += 1
            return taken
