"""Replication on this node, composed: fetching what it follows, serving what it leads, and keeping the ISR true.

Who lags behind is found as time passes; the changes of the ISR that leaders propose go to the controller.
"""

import asyncio
import logging
from collections.abc import Sequence

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.kernel.tasks import FailureHandler, TaskScope, monotonic_ms
from quorate.kernel.turns import Backlog
from quorate.metadata.core.commands import AlterIsr, IsrChange
from quorate.metadata.core.decisions import PartitionOutcome
from quorate.metadata.store import MetadataStore
from quorate.replication.catch_up_throttle import CatchUpThrottle
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.core.leader_events import (
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LeaderEvent,
    ProposeIsr,
    TimePassed,
)
from quorate.replication.follower_sessions import FindPartition, FollowerSessions
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.replication.replica_fetcher import Call, ReplicaFetcher

logger = logging.getLogger(__name__)

_LOOKS_PER_LAG_TIME = 4

#: In one command, which every node applies in one turn of its loop.
_AT_ONCE = 500

_Proposal = tuple[Partition, ProposeIsr]

#: The controller has judged the proposal at its own epochs and said no.
_REFUSED = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST})
#: The controller is ahead of the proposal.
_OUTDATED = frozenset(
    {
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class NodeReplication:
    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        metadata: MetadataStore,
        config: ReplicationConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        find_led: FindPartition,
        call: Call,
        first_session: int,
        on_failure: FailureHandler,
        leader_throttle: CatchUpThrottle | None = None,
        follower_throttle: CatchUpThrottle | None = None,
    ) -> None:
        self.config = config
        self._on_failure = on_failure
        self._loop = loop
        self._proposals = IsrProposals(node_id, broker_epoch, metadata, loop, on_failure)
        #: What answers the fetches of followers.
        self.followers = FollowerSessions(loop, find_led, leader_throttle)
        self._fetcher = ReplicaFetcher(
            node_id,
            broker_epoch,
            loop,
            call,
            first_session=first_session,
            on_failure=on_failure,
            throttle=follower_throttle,
        )
        #: Led partitions in which somebody is behind or missing: only these are looked at as time passes.
        self._unsettled: dict[Partition, None] = {}
        self._looks: Backlog[Partition] = Backlog(loop, self._look_at, on_failure, then=self._schedule_look)
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        self._proposals.stop()
        self.followers.stop()
        self._fetcher.stop()
        self._looks.clear()
        if self._timer is not None:
            self._timer.cancel()

    # From partitions.

    def now_ms(self) -> int:
        return monotonic_ms(self._loop)

    def propose_isr(self, partition: Partition, proposal: ProposeIsr) -> None:
        self._proposals.propose(partition, proposal)

    def synced_as_follower(self, partition: Partition) -> None:
        self._fetcher.synced(partition)

    def lost_its_disk(self, partition: Partition, failure: KafkaError) -> None:
        """End the node: as long as it runs, nobody else leads what it cannot serve."""
        logger.error("replica lost partition=%s error=%s", partition, failure)
        self._on_failure(failure)

    def watch_lag(self, partition: Partition) -> None:
        """Somebody may be behind: look again until nobody is."""
        if partition not in self._unsettled:
            self._unsettled[partition] = None
            self._schedule_look()

    # From the metadata.

    def membership_changed(self, partition: Partition) -> None:
        """Another follower may have waited for this change before it could join too."""
        self.followers.refresh(partition, self.now_ms())
        self.watch_lag(partition)

    def brokers_changed(self, partition: Partition) -> None:
        """A follower that was fenced when it asked may join now."""
        if partition in self._unsettled:
            self.followers.refresh(partition, self.now_ms())

    def on_leading(self, partition: Partition) -> None:
        # What was asked for under an earlier leadership of this node must not count in this one.
        self.followers.leadership_changed(partition)
        self._fetcher.unfollow(partition)
        self.watch_lag(partition)

    def on_following(self, partition: Partition) -> None:
        self._unsettled.pop(partition, None)
        self.followers.leadership_changed(partition)
        self._fetcher.follow(partition)

    def on_idle(self, partition: Partition) -> None:
        self._unsettled.pop(partition, None)
        self.followers.leadership_changed(partition)
        self._fetcher.unfollow(partition)

    # From peers.

    def peer_connected(self, node_id: NodeId, incarnation: int) -> None:  # noqa: ARG002
        self._fetcher.peer_connected(node_id)

    def peer_connection_lost(self, node_id: NodeId) -> None:
        """Its fetches end by themselves."""

    def peer_died(self, node_id: NodeId) -> None:
        """Who leads instead is in the metadata."""

    def _schedule_look(self) -> None:
        if self._timer is None and self._unsettled and not self._looks:
            interval_s = self.config.replica_lag_time_max_ms / _LOOKS_PER_LAG_TIME / 1000
            self._timer = self._loop.call_later(interval_s, self._look)

    def _look(self) -> None:
        self._timer = None
        self._looks.run(list(self._unsettled))

    def _look_at(self, partition: Partition) -> None:
        role = partition.role
        if not isinstance(role, Leading) or partition.failure is not None or role.is_settled:
            self._unsettled.pop(partition, None)
            return
        now_ms = self.now_ms()
        self.followers.refresh(partition, now_ms)
        partition.step(TimePassed(now_ms=now_ms))


class IsrProposals:
    """Brings the changes of in-sync replicas that leaders propose to the controller, many in one command."""

    def __init__(
        self,
        node_id: NodeId,
        broker_epoch: BrokerEpoch,
        metadata: MetadataStore,
        loop: asyncio.AbstractEventLoop,
        on_failure: FailureHandler,
    ) -> None:
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._proposed: list[_Proposal] = []
        self._tasks = TaskScope(loop, on_failure)
        self._is_sending = False

    def propose(self, partition: Partition, proposal: ProposeIsr) -> None:
        self._proposed.append((partition, proposal))
        if not self._is_sending:
            self._is_sending = True
            self._tasks.spawn(self._send_all())

    def stop(self) -> None:
        self._tasks.cancel_all()

    async def _send_all(self) -> None:
        """One command at a time: what is proposed meanwhile goes with the next ones."""
        try:
            while self._proposed:
                batch, self._proposed = self._proposed[:_AT_ONCE], self._proposed[_AT_ONCE:]
                await self._send(batch)
        finally:
            self._is_sending = False

    async def _send(self, batch: Sequence[_Proposal]) -> None:
        command = AlterIsr(
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            changes=tuple(_change(partition, proposal) for partition, proposal in batch),
        )
        (outcome,) = await self._metadata.submit([command])
        if isinstance(outcome, KafkaError):
            logger.debug("in-sync replicas not changed node=%s error=%s", self._node_id, outcome)
            for partition, proposal in batch:
                partition.step(IsrChangeUnanswered(proposal=proposal))
            return
        for (partition, proposal), one in zip(batch, outcome.partitions, strict=True):
            event = _fate(one, proposal)
            if event is not None:
                partition.step(event)


def _change(partition: Partition, proposal: ProposeIsr) -> IsrChange:
    return IsrChange(
        topic_id=partition.identity.topic_id,
        partition=partition.identity.partition,
        leader_epoch=proposal.leader_epoch,
        partition_epoch=proposal.partition_epoch,
        new_isr=proposal.isr,
    )


def _fate(outcome: PartitionOutcome, proposal: ProposeIsr) -> LeaderEvent | None:
    """What the leader is told; nothing where it is accepted, for then the image tells it."""
    if outcome.error is ErrorCode.NONE:
        return None
    if outcome.error in _REFUSED:
        return IsrChangeRefused(proposal=proposal)
    if outcome.error in _OUTDATED:
        return IsrChangeOutdated(proposal=proposal)
    return IsrChangeUnanswered(proposal=proposal)
