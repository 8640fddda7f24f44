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

NEVER_MS = -(1 << 62)


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
        if log_end_offset < self._log_end_offset:
            self._not_back(self._log_end_offset, log_end_offset)
        self._log_end_offset = log_end_offset
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

    def _new_follower(self, *, is_in_sync: bool) -> "FollowerProgress":
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

    def _is_about_to_join(self, node: NodeId, progress: "FollowerProgress") -> bool:
        """Waiting for it lets it reach the watermark; under a steady load it would run after it for ever."""
        return self._is_live(node, progress) and self._is_caught_up(progress)

    def _is_caught_up(self, progress: "FollowerProgress") -> bool:
        return progress.is_caught_up(self._log_end_offset, self._now_ms, self._config.replica_lag_time_max_ms)

    def _is_live(self, node: NodeId, progress: "FollowerProgress") -> bool:
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


class FollowerProgress:
    """How far one follower has come, and when it last had everything, as its leader knows it.

    Holds for one leader epoch and one incarnation of the follower: within both, a matching log only grows.
    """

    __slots__ = ("_caught_up_ms", "_last_fetch_ms", "_log_end_at_last_fetch", "broker_epoch", "fetch_offset")

    def __init__(self, *, caught_up_ms: int) -> None:
        self.broker_epoch: BrokerEpoch | None = None
        #: None until the follower has fetched: it may have anything or nothing.
        self.fetch_offset: Offset | None = None
        self._caught_up_ms = caught_up_ms
        self._last_fetch_ms = NEVER_MS
        self._log_end_at_last_fetch: Offset | None = None

    def fetched(self, broker_epoch: BrokerEpoch, fetch_offset: Offset, log_end_offset: Offset, now_ms: int) -> None:
        if self.broker_epoch is not None and broker_epoch < self.broker_epoch:
            return
        if self.broker_epoch is not None and broker_epoch > self.broker_epoch:
            self.forget()
        self.broker_epoch = broker_epoch
        if self.fetch_offset is not None and fetch_offset < self.fetch_offset:
            return  # A request that was overtaken on its way.
        self._note_caught_up(fetch_offset, log_end_offset, now_ms)
        self.fetch_offset = fetch_offset
        self._last_fetch_ms = now_ms
        self._log_end_at_last_fetch = log_end_offset

    def log_grew(self, old_end_offset: Offset, now_ms: int) -> None:
        """The leader appends: who had everything until now has not been lagging before."""
        if self.fetch_offset == old_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)

    def forget(self) -> None:
        """The follower was restarted: what its last life had on disk, this one may not have."""
        self.broker_epoch = None
        self.fetch_offset = None
        self._caught_up_ms = NEVER_MS
        self._last_fetch_ms = NEVER_MS
        self._log_end_at_last_fetch = None

    def is_caught_up(self, log_end_offset: Offset, now_ms: int, lag_time_max_ms: int) -> bool:
        """A follower that stands at the log end has nothing to fetch, so silence does not make it lag."""
        return self.fetch_offset == log_end_offset or now_ms - self._caught_up_ms <= lag_time_max_ms

    def _note_caught_up(self, fetch_offset: Offset, log_end_offset: Offset, now_ms: int) -> None:
        if fetch_offset >= log_end_offset:
            self._caught_up_ms = max(self._caught_up_ms, now_ms)
        elif self._log_end_at_last_fetch is not None and fetch_offset >= self._log_end_at_last_fetch:
            # Under a steady load it never stands at the end, yet it has all that there was when it last asked.
            self._caught_up_ms = max(self._caught_up_ms, self._last_fetch_ms)


class IsrChanges:
    """The in-sync replicas of a partition: what is committed, and what may be committed already without us knowing.

    The controller accepts a proposal only at the partition epoch it was made from, so any newer committed membership
    ends all proposals made before it. Until then, whoever an unrefused proposal would add counts as in sync: it may be
    elected.
    """

    def __init__(self, membership: PartitionMembership) -> None:
        self.membership = membership
        self._proposals = 0
        #: At most one: the next is made from what this one leads to.
        self._in_flight: frozenset[NodeId] | None = None
        #: Of attempts that got no answer: such an attempt may still be on its way to the controller.
        self._possible: frozenset[NodeId] = frozenset()
        #: The controller is ahead of us; nothing we propose would be accepted.
        self._awaits_membership = False

    @property
    def maximal(self) -> frozenset[NodeId]:
        """Everybody who may be elected leader next, so everybody whom the high watermark must wait for."""
        return self.membership.isr | self._possible | (self._in_flight or frozenset())

    @property
    def possible(self) -> frozenset[NodeId]:
        """Who is not in sync as far as we know, but may be by an attempt that got no answer."""
        return self._possible - self.membership.isr

    @property
    def may_propose(self) -> bool:
        return self._in_flight is None and not self._awaits_membership

    @property
    def is_unsettled(self) -> bool:
        """Some attempt got no answer: only a newer partition epoch makes sure that it never comes into force."""
        return bool(self._possible)

    def propose(self, isr: frozenset[NodeId]) -> int:
        self._in_flight = isr
        self._proposals += 1
        return self._proposals

    def commit(self, membership: PartitionMembership) -> bool:
        """Take over a committed membership; False if it is no news."""
        if membership.partition_epoch <= self.membership.partition_epoch:
            return False
        self.membership = membership
        self._in_flight = None
        self._possible = frozenset()
        self._awaits_membership = False
        return True

    def refused(self, number: int) -> None:
        if self._is_in_flight(number):
            self._in_flight = None

    def unanswered(self, number: int) -> None:
        if self._is_in_flight(number):
            self._possible |= self._in_flight or frozenset()
            self._in_flight = None

    def outdated(self, number: int) -> None:
        if self._is_in_flight(number):
            # What is newer at the controller may be an earlier attempt of ours, so this one must not be dropped.
            self.unanswered(number)
            self._awaits_membership = True

    def _is_in_flight(self, number: int) -> bool:
        return self._in_flight is not None and number == self._proposals


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Whether enough replicas are in sync for ``acks=all`` is asked of this number, by leaders and by tools.

    A topic with fewer replicas than ``min.insync.replicas`` needs them all, and no more.
    """
    return min(min_insync_replicas, replica_count)
