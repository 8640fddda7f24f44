"""Keeps the cluster in balance without an operator.

Leaders go back to where they belong, a new node gets its share, and what a node held that was removed goes to others.

Runs on the quorum leader. A look comes some time after something changed, never because time passes: a cluster in
which nothing happens does nothing.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, QuorumLeader
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.metadata.core.commands import (
    AlterPartitionReassignments,
    Command,
    ElectionKind,
    ElectLeaders,
    RebalancePartitions,
)
from quorate.metadata.core.elections import preferred_leader_imbalance
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.metadata.core.rebalancing import replacement_plan
from quorate.metadata.core.replica_changes import list_reassignments
from quorate.metadata.store import MetadataStore

logger = logging.getLogger(__name__)


class BalanceConfig(msgspec.Struct, frozen=True, kw_only=True):
    delay_ms: int
    moves_leaders: bool
    fills_new_nodes: bool
    #: Whether partitions are preferably led by the quorum leader.
    favours_quorum_leader: bool


class AutomaticBalance:
    def __init__(
        self,
        config: BalanceConfig,
        store: MetadataStore,
        own_leadership: Callable[[], QuorumLeader | None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._store = store
        self._own_leadership = own_leadership
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._tasks = TaskScope(loop, logged_failures(logger, "automatic balance"))
        self._is_balancing = False
        self._stopped = False
        #: Brokers that have had replicas. One that has none any more was emptied, and is not to be filled again.
        self._were_filled: set[NodeId] = set()

    def start(self) -> None:
        self._store.subscribe(self._metadata_changed)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.cancel_all()

    def look_soon(self) -> None:
        """After a while, so that a burst of changes makes one look."""
        if self._timer is None and not self._stopped and self._own_leadership() is not None:
            self._timer = self._loop.call_later(self._config.delay_ms / 1000, self._look)

    def _metadata_changed(self, image: MetadataImage, delta: Delta) -> None:
        if delta.changed_brokers or delta.changed_partitions:
            self._were_filled &= image.brokers.keys()
            self._were_filled |= image.brokers.keys() & image.hosted.keys()
            self.look_soon()

    def _look(self) -> None:
        self._timer = None
        leadership = self._own_leadership()
        if leadership is not None and not self._is_balancing:
            self._is_balancing = True
            self._tasks.spawn(self._balance(leadership))

    async def _balance(self, leadership: QuorumLeader) -> None:
        try:
            for command in self._due(self._store.image, leadership):
                (outcome,) = await self._store.submit([command])
                if isinstance(outcome, KafkaError):
                    logger.info("balance not changed command=%s error=%s", type(command).__name__, outcome)
        finally:
            self._is_balancing = False

    def _due(self, image: MetadataImage, leadership: QuorumLeader) -> list[Command]:
        due: list[Command] = []
        lost = replacement_plan(image) if self._config.fills_new_nodes else ()
        if lost:
            logger.info("replicas of removed nodes go elsewhere node=%s partitions=%s", leadership.node_id, len(lost))
            due.append(AlterPartitionReassignments(reassignments=lost))
        elif self._config.fills_new_nodes and self._has_new_node(image) and not list_reassignments(image):
            logger.info("a node without replicas gets its share node=%s", leadership.node_id)
            due.append(RebalancePartitions())
        favoured = leadership if self._config.favours_quorum_leader else None
        misplaced = preferred_leader_imbalance(image, favoured) if self._config.moves_leaders else ()
        if misplaced:
            logger.info("leaders go back node=%s partitions=%s", leadership.node_id, len(misplaced))
            due.append(ElectLeaders(kind=ElectionKind.PREFERRED, partitions=misplaced))
        return due

    def _has_new_node(self, image: MetadataImage) -> bool:
        """One that has just joined, in a cluster that has something to share."""
        counts = {node: image.replica_count(node) for node, broker in image.brokers.items() if broker.is_active}
        are_new = any(not count and node not in self._were_filled for node, count in counts.items())
        return are_new and sum(counts.values()) > len(counts)
