"""The node's view of the metadata: the image that everybody reads, and the way to change it.

Readers take ``image``: a local read, always. It changes only after the records behind the change are committed, which
the subclass sees to: ``quorum.metadata_store``, by the quorum.

In the moments after a broker was lost who leads is uncertain. A client whose leader died asks for metadata within a
millisecond; the cluster needs a few tens to elect the next leader. An answer that waits for that is worth more than one
that names a dead node, which costs the client a whole backoff. The image stays the only source:
``LeadershipUncertainty`` only tells when it is about to change.

librdkafka closes everything that belongs to a broker the moment metadata no longer lists it, the partitions on their
way to another broker included, and then waits a second before it asks again. One that is listed a little longer
(``DepartedBrokers``) is left in peace, and its partitions move at once. Nothing is said of it but its address: it leads
nothing.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import cast

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, Offset, PartitionIndex, PartitionLeader, TopicName
from quorate.kernel.tasks import Notifier
from quorate.metadata.core.commands import Command
from quorate.metadata.core.decisions import AnswerT_co, Outcomes, TaggedCommand
from quorate.metadata.core.image import Broker, Delta, MetadataImage
from quorate.metadata.core.records import AnyRecord

Listener = Callable[[MetadataImage, Delta], None]
#: Topic, partition, and its new leader; None where it has none.
LeadershipListener = Callable[[TopicName, PartitionIndex, PartitionLeader | None], None]

#: How long an answer may wait. Longer than an election takes, shorter than a client notices.
_UNCERTAIN_S = 0.4
#: Longer than clients take to move, shorter than a node takes to come back: then a client's backoff is forgotten too.
_LISTED_FOR_S = 3.0


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
            raise outcome.again()
        return outcome

    def replay(self, records: Sequence[AnyRecord], version: Offset) -> None:
        """Apply committed records to the image, and call the listeners."""
        self._show(*self.image.replay(records, version))

    def _show(self, image: MetadataImage, delta: Delta | None) -> None:
        self.image = image
        if delta is not None:
            for listener in self._listeners:
                listener(image, delta)


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
