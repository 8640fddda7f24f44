"""Replication on this node, composed: fetching what it follows, serving what it leads, and watching for laggards."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.kernel.ports import Buffer
from quorate.kernel.turns import Backlog
from quorate.metadata.store import MetadataStore
from quorate.replication.catch_up_throttle import CatchUpThrottle
from quorate.replication.core.leader import ReplicationConfig
from quorate.replication.core.leader_events import ProposeIsr, TimePassed
from quorate.replication.follower_sessions import FindPartition, FollowerSessions
from quorate.replication.isr_proposals import IsrProposals
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.replication.replica_fetcher import Call, ReplicaFetcher

logger = logging.getLogger(__name__)

_LOOKS_PER_LAG_TIME = 4


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
        on_failure: Callable[[Exception], None],
        leader_throttle: CatchUpThrottle | None = None,
        follower_throttle: CatchUpThrottle | None = None,
    ) -> None:
        self.config = config
        self._on_failure = on_failure
        self._loop = loop
        self._proposals = IsrProposals(node_id, broker_epoch, metadata, loop)
        self._followers = FollowerSessions(loop, find_led, leader_throttle)
        self._fetcher = ReplicaFetcher(
            node_id, broker_epoch, loop, call, first_session=first_session, throttle=follower_throttle
        )
        #: Led partitions in which somebody is behind or missing: only these are looked at as time passes.
        self._unsettled: dict[Partition, None] = {}
        self._looks: Backlog[Partition] = Backlog(loop, self._look_at, on_failure, then=self._schedule_look)
        self._timer: asyncio.TimerHandle | None = None

    def stop(self) -> None:
        self._proposals.stop()
        self._followers.stop()
        self._fetcher.stop()
        self._looks.clear()
        if self._timer is not None:
            self._timer.cancel()

    # From partitions.

    def now_ms(self) -> int:
        return round(self._loop.time() * 1000)

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
        self._followers.refresh(partition, self.now_ms())
        self.watch_lag(partition)

    def brokers_changed(self, partition: Partition) -> None:
        """A follower that was fenced when it asked may join now."""
        if partition in self._unsettled:
            self._followers.refresh(partition, self.now_ms())

    def on_leading(self, partition: Partition) -> None:
        # What was asked for under an earlier leadership of this node must not count in this one.
        self._followers.leadership_changed(partition)
        self._fetcher.unfollow(partition)
        self.watch_lag(partition)

    def on_following(self, partition: Partition) -> None:
        self._unsettled.pop(partition, None)
        self._followers.leadership_changed(partition)
        self._fetcher.follow(partition)

    def on_idle(self, partition: Partition) -> None:
        self._unsettled.pop(partition, None)
        self._followers.leadership_changed(partition)
        self._fetcher.unfollow(partition)

    # From peers.

    async def fetch(self, follower: NodeId, payload: bytes) -> Sequence[Buffer]:
        return await self._followers.fetch(follower, payload)

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
        self._followers.refresh(partition, now_ms)
        partition.step(TimePassed(now_ms=now_ms))
