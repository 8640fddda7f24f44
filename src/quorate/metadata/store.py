"""The node's view of the metadata: the image that everybody reads, and the way to change it.

Readers take ``image``: a local read, always. It changes only after the records behind the change are committed, which
the subclass sees to: ``quorum.metadata_store``, by the quorum.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import cast

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import Offset, PartitionIndex, PartitionLeader, TopicName
from quorate.metadata.core.commands import Command, TaggedCommand
from quorate.metadata.core.decisions import AnswerT_co, Outcomes
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.records import AnyRecord

Listener = Callable[[MetadataImage, Delta], None]
#: Topic, partition, and its new leader; None where it has none.
LeadershipListener = Callable[[TopicName, PartitionIndex, PartitionLeader | None], None]


class MetadataStore(ABC):
    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Have the listener called, in the order of subscription, after every change."""
        self._listeners.append(listener)

    def on_leadership_changed(self, listener: LeadershipListener) -> None:
        """Have the listener called for every partition whose leader or leader epoch has changed, on every node.

        It is called for committed changes that were applied here; there is no other notice of an election.
        """

        def changed(image: MetadataImage, delta: Delta) -> None:
            for name in delta.changed_leaders:
                listener(name.topic, name.partition, image.partition_leader(name.topic, name.partition))

        self.subscribe(changed)

    async def submit(
        self, commands: Sequence[TaggedCommand[AnswerT_co]], *, validate_only: bool = False
    ) -> list[AnswerT_co | KafkaError]:
        """Carry out the commands in order; each has its own outcome. Returns when the image shows the result."""
        outcomes = await self._carry_out(cast(Sequence[Command], commands), validate_only=validate_only)
        return cast(list[AnswerT_co | KafkaError], outcomes)

    @abstractmethod
    async def _carry_out(self, commands: Sequence[Command], *, validate_only: bool) -> Outcomes:
        """Each outcome is an error, or the answer that the command's type names."""

    @abstractmethod
    async def is_current(self) -> bool:
        """Whether the image shows all that was committed before the call; False if that is not known in time."""

    async def submit_one(self, command: TaggedCommand[AnswerT_co]) -> AnswerT_co:
        """Carry out one command, or raise the error that refuses it."""
        (outcome,) = await self.submit([command])
        if isinstance(outcome, KafkaError):
            raise outcome
        return outcome

    def replay(self, records: Sequence[AnyRecord], version: Offset) -> None:
        """Apply committed records to the image, and call the listeners."""
        self._show(*self.image.replay(records, version))

    def _show(self, image: MetadataImage, delta: Delta | None) -> None:
        self.image = image
        if delta is not None:
            for listener in self._listeners:
                listener(image, delta)
