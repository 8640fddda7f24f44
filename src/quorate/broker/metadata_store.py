"""The node's view of the metadata: commands are decided, persisted and replayed here, one after the other.

How records are made durable is handed in, so that a test can keep them in memory. Readers take ``image``; it changes
only after the records behind the change are durable.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import Offset
from quorate.metadata.commands import Command
from quorate.metadata.controller import Controller, Decision
from quorate.metadata.image import Delta, MetadataImage
from quorate.metadata.records import AnyRecord

Persist = Callable[[Sequence[AnyRecord]], Awaitable[Offset]]
Listener = Callable[[MetadataImage, Delta], None]


class MetadataStore:
    def __init__(self, controller: Controller, image: MetadataImage, persist: Persist) -> None:
        self._controller = controller
        self._persist = persist
        self._listeners: list[Listener] = []
        self._turn = asyncio.Lock()
        self.image = image

    def subscribe(self, listener: Listener) -> None:
        """Have the listener called, in the order of subscription, after every change."""
        self._listeners.append(listener)

    async def submit(self, commands: Sequence[Command], *, validate_only: bool = False) -> list[Decision | KafkaError]:
        """Carry out the commands together; each has its own outcome. Returns when the image shows the result."""
        async with self._turn:
            outcomes, records = self._decide_all(commands)
            if records and not validate_only:
                version = await self._persist(records)
                self.image, delta = self.image.replay(records, version)
                for listener in self._listeners:
                    listener(self.image, delta)
            return outcomes

    async def submit_one(self, command: Command) -> Decision:
        """Carry out one command, or raise the error that refuses it."""
        (outcome,) = await self.submit([command])
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def _decide_all(self, commands: Sequence[Command]) -> tuple[list[Decision | KafkaError], list[AnyRecord]]:
        """Decide each command on top of those before it."""
        draft = self.image
        outcomes: list[Decision | KafkaError] = []
        records: list[AnyRecord] = []
        for command in commands:
            try:
                decision = self._controller.decide(draft, command)
            except KafkaError as error:
                outcomes.append(error)
                continue
            outcomes.append(decision)
            records.extend(decision.records)
            draft, _ = draft.replay(decision.records, draft.version)
        return outcomes, records


def in_memory(image: MetadataImage) -> Persist:
    """Persists nothing: for tests and throw-away nodes."""
    version = image.version

    async def persist(records: Sequence[AnyRecord]) -> Offset:
        nonlocal version
        version = Offset(version + len(records))
        return version

    return persist
