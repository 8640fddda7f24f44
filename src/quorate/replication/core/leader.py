"""The leader of one partition in one leader epoch: what is committed, who is in sync.

The high watermark is the least of what the leader and every replica of the maximal ISR have. A new leader starts from
the watermark it knew as a follower and assumes nothing about the others: until each of them has fetched in this epoch,
nothing more is committed. Then everything that all of them hold is, whichever epoch wrote it: whoever is elected next
has it.
"""

from typing import assert_never

import msgspec

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, NodeId, Offset, PartitionLeader
from quorate.metadata.core.commands import IsrMember
from quorate.replication.core.follower_progress import NEVER_MS, FollowerProgress
from quorate.replication.core.isr_changes import IsrChanges
from quorate.replication.core.leader_events import (
    FollowerFetched,
    HighWatermarkAdvanced,
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LeaderAppended,
    LeaderDurable,
    LeaderEffect,
    LeaderEvent,
    LiveBrokersChanged,
    MembershipChanged,
    MinInsyncReplicasChanged,
    PartitionMembership,
    ProposeIsr,
    TimePassed,
)
from quorate.replication.core.min_isr import effective_min_isr


class ReplicationConfig(msgspec.Struct, frozen=True, kw_only=True):
    #: Durability ``fsync``: the leader counts what it has synced. Without it, what it has appended.
    requires_sync: bool = True
    replica_lag_time_max_ms: int = 10_000
    #: How long to wait after a proposal came to nothing.
    isr_retry_backoff_ms: int = 100


class LeaderStart(msgspec.Struct, frozen=True, kw_only=True):
    """What a node knows at the moment it takes up the leadership."""

    leader: PartitionLeader
    membership: PartitionMembership
    broker_epochs: dict[NodeId, BrokerEpoch]  # Of the live brokers, this one included.
    log_end_offset: Offset  # Where the leader epoch starts.
    durable_offset: Offset
    high_watermark: Offset  # What the node knew as a follower.
    min_insync_replicas: int
    now_ms: int


class LeaderReplica:
    """The high watermark is the partition's: it is handed in, and handed back where it moves."""

    def __init__(self, start: LeaderStart, config: ReplicationConfig) -> None:
        if start.high_watermark > start.log_end_offset:
            raise ValueError(f"a high watermark of {start.high_watermark} beyond the log end {start.log_end_offset}")
        self.leader = start.leader
        self.epoch_start_offset = start.log_end_offset
        self._config = config
        self._log_end_offset = start.log_end_offset
        self._durable_offset = start.durable_offset
        self._broker_epochs = start.broker_epochs
        self._min_insync_replicas = start.min_insync_replicas
        self._now_ms = start.now_ms
        self._propose_from_ms = start.now_ms
        self._isr = IsrChanges(start.membership)
        #: Of every replica but the leader.
        self._followers: dict[NodeId, FollowerProgress] = {}
        self._take_over_membership()

    @property
    def isr(self) -> frozenset[NodeId]:
        return self._isr.membership.isr

    def is_settled(self, high_watermark: Offset) -> bool:
        """Every replica is in sync and has everything: nothing changes by the passing of time."""
        membership = self._isr.membership
        return (
            high_watermark == self._log_end_offset
            and len(membership.isr) == len(membership.replicas)
            and not self._isr.is_unsettled
        )

    def append_alone(self, log_end_offset: Offset, high_watermark: Offset) -> Offset:
        """What ``LeaderAppended`` comes to where there is no other replica: returns the high watermark."""
        self._log_end_offset = self._not_back(self._log_end_offset, log_end_offset)
        return high_watermark if self._config.requires_sync else log_end_offset

    def check_writable(self, *, acks_all: bool) -> ErrorCode | None:
        return ErrorCode.NOT_ENOUGH_REPLICAS if acks_all and not self.has_enough_replicas else None

    def step(self, event: LeaderEvent, high_watermark: Offset) -> list[LeaderEffect]:
        """Apply one event; return what the shell must carry out, in order."""
        self._apply(event)
        effects: list[LeaderEffect] = []
        committed = self.advanced(high_watermark)
        if committed > high_watermark:
            effects.append(HighWatermarkAdvanced(offset=committed))
        if isinstance(event, FollowerFetched):
            effects += self._propose_to_add(event.follower, committed)
        elif isinstance(event, TimePassed):
            effects += self._propose_to_drop_the_lagging(committed)
        return effects

    def _apply(self, event: LeaderEvent) -> None:
        match event:
            case LeaderAppended(log_end_offset=offset, now_ms=now_ms):
                for progress in self._followers.values():
                    progress.log_grew(self._log_end_offset, now_ms)
                self._log_end_offset = self._not_back(self._log_end_offset, offset)
            case LeaderDurable(offset=offset):
                self._durable_offset = max(self._durable_offset, offset)
            case FollowerFetched():
                self._note_fetch(event)
            case MembershipChanged(membership=membership):
                if self._isr.commit(membership):
                    self._take_over_membership()
            case LiveBrokersChanged(broker_epochs=broker_epochs):
                self._take_over_brokers(broker_epochs)
            case IsrChangeRefused() | IsrChangeOutdated() | IsrChangeUnanswered():
                self._note_setback(event)
            case MinInsyncReplicasChanged(min_insync_replicas=minimum):
                self._min_insync_replicas = minimum
                self._count_replicas()
            case TimePassed(now_ms=now_ms):
                self._now_ms = max(self._now_ms, now_ms)
            case _:
                assert_never(event)

    def _not_back(self, now: Offset, new: Offset) -> Offset:
        if new < now:
            raise ValueError(f"the log of a leader moved back from {now} to {new}")
        return new

    def _note_fetch(self, fetch: FollowerFetched) -> None:
        self._now_ms = max(self._now_ms, fetch.now_ms)
        progress = self._followers.get(fetch.follower)
        registered = self._broker_epochs.get(fetch.follower)
        if progress is None or (registered is not None and fetch.broker_epoch < registered):
            return  # Not a replica, or the voice of a life that has ended.
        if fetch.fetch_offset > self._log_end_offset:
            raise ValueError(f"node {fetch.follower} was accepted at {fetch.fetch_offset}, beyond the log end")
        progress.fetched(fetch.broker_epoch, fetch.fetch_offset, self._log_end_offset, fetch.now_ms)

    def _take_over_membership(self) -> None:
        membership = self._isr.membership
        if self.leader.node_id not in membership.isr:
            raise ValueError(f"node {self.leader.node_id} leads a partition it is not in sync with")
        known = self._followers
        self._followers = {
            node: known.get(node) or self._new_follower(is_in_sync=node in membership.isr)
            for node in membership.isr.union(membership.replicas)
            if node != self.leader.node_id
        }
        self.is_sole_replica = not self._followers
        self._count_replicas()

    def _count_replicas(self) -> None:
        membership = self._isr.membership
        minimum = effective_min_isr(self._min_insync_replicas, len(membership.replicas))
        #: Whether the committed ISR has as many members as ``acks=all`` needs.
        self.has_enough_replicas = len(membership.isr) >= minimum
        #: Whether the committed ISR is the leader alone; others may be catching up.
        self.is_alone_in_sync = len(membership.isr) == 1

    def _new_follower(self, *, is_in_sync: bool) -> FollowerProgress:
        # A member of the ISR gets the whole lag time to make itself known to a new leader.
        return FollowerProgress(caught_up_ms=self._now_ms if is_in_sync else NEVER_MS)

    def _take_over_brokers(self, broker_epochs: dict[NodeId, BrokerEpoch]) -> None:
        self._broker_epochs = broker_epochs
        for node, progress in self._followers.items():
            registered = broker_epochs.get(node)
            if registered is not None and progress.broker_epoch is not None and progress.broker_epoch < registered:
                progress.forget()

    def _note_setback(self, event: IsrChangeRefused | IsrChangeOutdated | IsrChangeUnanswered) -> None:
        if event.proposal.leader_epoch != self.leader.leader_epoch:
            return  # This node led before, and what it proposed then is answered only now.
        match event:
            case IsrChangeRefused(proposal=proposal):
                self._isr.refused(proposal.number)
            case IsrChangeOutdated(proposal=proposal):
                self._isr.outdated(proposal.number)
            case IsrChangeUnanswered(proposal=proposal):
                self._isr.unanswered(proposal.number)
        self._propose_from_ms = self._now_ms + self._config.isr_retry_backoff_ms

    def advanced(self, high_watermark: Offset) -> Offset:
        """What is committed, where it was ``high_watermark`` until now: it never moves back."""
        committed = self._durable_offset if self._config.requires_sync else self._log_end_offset
        maximal_isr = self._isr.maximal
        for node, progress in self._followers.items():
            if node not in maximal_isr and not self._is_about_to_join(node, progress):
                continue
            if progress.fetch_offset is None:
                return high_watermark
            committed = min(committed, progress.fetch_offset)
        return max(high_watermark, committed)

    def _is_about_to_join(self, node: NodeId, progress: FollowerProgress) -> bool:
        """Waiting for it lets it reach the watermark; under a steady load it would run after it for ever."""
        return self._is_live(node, progress) and self._is_caught_up(progress)

    def _is_caught_up(self, progress: FollowerProgress) -> bool:
        return progress.is_caught_up(self._log_end_offset, self._now_ms, self._config.replica_lag_time_max_ms)

    def _is_live(self, node: NodeId, progress: FollowerProgress) -> bool:
        return progress.broker_epoch is not None and self._broker_epochs.get(node) == progress.broker_epoch

    def _may_join(self, node: NodeId, high_watermark: Offset) -> bool:
        """The watermark alone is not enough: a new leader's is behind what its predecessor has committed (KIP-966)."""
        progress = self._followers.get(node)
        return (
            progress is not None
            and progress.fetch_offset is not None
            and progress.fetch_offset >= max(high_watermark, self.epoch_start_offset)
            and self._is_live(node, progress)
        )

    def _propose_to_add(self, follower: NodeId, high_watermark: Offset) -> list[ProposeIsr]:
        if follower in self.isr or not self._may_join(follower, high_watermark):
            return []
        return self._propose(self.isr | self._retried(high_watermark) | {follower})

    def _propose_to_drop_the_lagging(self, high_watermark: Offset) -> list[ProposeIsr]:
        lagging = {node for node in self.isr & self._followers.keys() if not self._is_caught_up(self._followers[node])}
        if not lagging and not self._isr.is_unsettled:
            return []
        return self._propose((self.isr - lagging) | self._retried(high_watermark))

    def _retried(self, high_watermark: Offset) -> frozenset[NodeId]:
        """Whom an attempt without an answer would add, if they still may join."""
        return frozenset(node for node in self._isr.possible if self._may_join(node, high_watermark))

    def _propose(self, isr: frozenset[NodeId]) -> list[ProposeIsr]:
        if not self._isr.may_propose or self._now_ms < self._propose_from_ms:
            return []
        if self.leader.node_id not in self._broker_epochs:
            return []  # This broker itself is fenced, and may be deposed by now.
        # A broker that is not live would have the whole proposal refused, and is on its way out in any case.
        members = sorted(isr & self._broker_epochs.keys())
        return [
            ProposeIsr(
                number=self._isr.propose(frozenset(members)),
                isr=tuple(IsrMember(node_id=node, broker_epoch=self._broker_epochs[node]) for node in members),
                leader_epoch=self.leader.leader_epoch,
                partition_epoch=self._isr.membership.partition_epoch,
            )
        ]
