"""What the quorum leader keeps in order without an operator: who follows the metadata log, who leads, who holds what.

``MembershipUpkeep`` keeps the quorum's membership in step with the brokers: whoever is registered follows the metadata
log. So a node joins by registering, and one that votes no more goes on as a learner until it is unregistered. Nobody
becomes a voter this way, and no voter is taken away.

``AutomaticBalance`` keeps the cluster in balance: leaders go back to where they belong, a new node gets its share, and
what a node held that was removed goes to others. A look comes some time after something changed, never because time
passes: a cluster in which nothing happens does nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor

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
from quorate.metadata.core.image import Broker, Delta, MetadataImage
from quorate.metadata.core.rebalancing import replacement_plan
from quorate.metadata.core.replica_changes import list_reassignments
from quorate.metadata.store import MetadataStore
from quorate.quorum.core.membership import (
    AddLearner,
    Member,
    Membership,
    MembershipChange,
    RemoveMember,
    UpdateMember,
    updated_member,
)
from quorate.quorum.errors import NotQuorumLeader
from quorate.quorum.raft_driver import RaftDriver
from quorate.transport.peers.errors import OutcomeUnknown

logger = logging.getLogger(__name__)

#: While another change of the membership is under way.
_RETRY_S = 0.05
#: Partitions that are looked at in one turn of the loop at most, some milliseconds; a worker looks at more.
_LOOKED_AT_ONCE = 5_000


class MembershipUpkeep:
    def __init__(
        self,
        driver: RaftDriver,
        image: Callable[[], MetadataImage],
        is_leading: Callable[[], bool],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._driver = driver
        self._image = image
        self._is_leading = is_leading
        self._tasks = TaskScope(loop, logged_failures(logger, "upkeep of the membership"))
        self._is_catching_up = False

    def look(self) -> None:
        """Brokers have changed, or this node has begun to lead."""
        if not self._is_catching_up and self._is_leading():
            self._is_catching_up = True
            self._tasks.spawn(self._catch_up())

    def stop(self) -> None:
        self._tasks.cancel_all()

    async def _catch_up(self) -> None:
        try:
            while self._is_leading():
                change = due_change(self._driver.membership, self._image().brokers)
                if change is None:
                    return
                await self._carry_out(change)
        finally:
            self._is_catching_up = False

    async def _carry_out(self, change: MembershipChange) -> None:
        try:
            await self._driver.change_membership(change)
        except (NotQuorumLeader, OutcomeUnknown):
            await asyncio.sleep(_RETRY_S)
        else:
            logger.info("membership follows the brokers change=%s", change)


def due_change(membership: Membership, brokers: Mapping[NodeId, Broker]) -> MembershipChange | None:
    """The first change that brings the membership nearer to the brokers."""
    for node_id, broker in brokers.items():
        member = membership.member(node_id)
        if member is None:
            return AddLearner(node_id, broker.peer_address, broker.directory_id)
        update = UpdateMember(node_id, broker.peer_address, broker.directory_id)
        if isinstance(updated_member(member, update), Member):
            return update
    # Voters have yet to register where a cluster is new.
    return next((RemoveMember(node_id) for node_id in sorted(membership.learners - brokers.keys())), None)


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
        executor: Executor,
    ) -> None:
        self._config = config
        self._store = store
        self._own_leadership = own_leadership
        self._loop = loop
        self._executor = executor
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
            for command in await self._look_at(self._store.image, leadership):
                (outcome,) = await self._store.submit([command])
                if isinstance(outcome, KafkaError):
                    logger.info("balance not changed command=%s error=%s", type(command).__name__, outcome)
        finally:
            self._is_balancing = False

    async def _look_at(self, image: MetadataImage, leadership: QuorumLeader) -> list[Command]:
        """An image never changes, so that a worker may take its time."""
        if sum(len(topic.partitions) for topic in image.topics.values()) <= _LOOKED_AT_ONCE:
            return self._due(image, leadership)
        return await self._loop.run_in_executor(self._executor, self._due, image, leadership)

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
