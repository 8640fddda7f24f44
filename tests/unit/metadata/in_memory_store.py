"""A metadata store that commits at once and stores nothing."""

import asyncio
from collections.abc import Sequence

from quorate.kernel.ids import Offset
from quorate.metadata.core.commands import Command
from quorate.metadata.core.controller import Controller
from quorate.metadata.core.decisions import Outcomes
from quorate.metadata.core.image import MetadataImage
from quorate.metadata.store import MetadataStore


class InMemoryMetadataStore(MetadataStore):
    def __init__(self, controller: Controller, image: MetadataImage) -> None:
        super().__init__(image)
        self._controller = controller
        self._turn = asyncio.Lock()

    async def _carry_out(self, commands: Sequence[Command], *, validate_only: bool) -> Outcomes:
        async with self._turn:
            outcomes, records = self._controller.decide_all(self.image, commands)
            if records and not validate_only:
                self.replay(records, Offset(self.image.version + 1))
            return outcomes

    async def is_current(self) -> bool:
        return True
