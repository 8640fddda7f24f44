"""A replica that leads: writes, those who wait until they are committed, and the followers that ask for more."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.records.batch import BatchHeader, read_batches
from quorate.records.control import TransactionEnd
from quorate.replication.core.acks import Ack, AckTracker
from quorate.replication.core.leader import LeaderReplica, LeaderStart, ReplicationConfig
from quorate.replication.core.leader_events import (
    HighWatermarkAdvanced,
    LeaderAppended,
    LeaderDurable,
    LeaderEffect,
    LeaderEvent,
    MembershipChanged,
    MinInsyncReplicasChanged,
)
from quorate.replication.partition import CommitCallback, Partition, ReplicaRole
from quorate.replication.producers import PendingVerifications
from quorate.storage.appending import AppendInfo

_NEW_PARTITION = 0
#: Java waits half a minute for an answer by default, and librdkafka a minute.
_REQUESTS_END_WITHIN_MS = 65_000
#: What a producer sent right behind a batch that this node refused, as it did not know the topic yet, has come by then.
_FIRST_REQUESTS_COME_WITHIN_MS = 2_000


class FollowerWatch(Protocol):
    """A follower that has asked for what comes next."""

    def has_records(self, partition: Partition) -> None: ...

    def has_watermark(self, partition: Partition) -> None: ...


def lead(partition: Partition, start: LeaderStart, config: ReplicationConfig) -> None:
    """Take writes in the leader epoch of ``start``; its offsets are filled in here."""
    # By the partition epoch: the leader epochs of a topic that was made anew start above those of its namesakes.
    is_first_epoch = start.membership.partition_epoch == _NEW_PARTITION
    early_until_ms = _early_until_ms(partition, start.leader.leader_epoch, is_first_epoch=is_first_epoch)
    partition.leave_role(start.leader.leader_epoch)
    log = partition.log
    log.assign_epoch_start(partition.leader_epoch)
    log_end = log.log_end_offset
    start = msgspec.structs.replace(
        start,
        log_end_offset=log_end,
        durable_offset=log.synced_end_offset,
        high_watermark=min(max(partition.high_watermark, log.log_start_offset), log_end),
        min_insync_replicas=partition.settings.min_insync_replicas,
    )
    core = LeaderReplica(start, config)
    partition.role = Leading(partition, core, early_until_ms=early_until_ms, is_first_epoch=is_first_epoch)
    partition.high_watermark = core.advanced(start.high_watermark)
    log.commit_transactions_up_to(partition.high_watermark)
    if log.synced_end_offset < log_end:
        partition.group_commit.request(partition)
    partition.tell_watchers()


def require_leading(partition: Partition) -> "Leading":
    """The role of a partition that this node leads; otherwise the error that a client is to see."""
    if partition.failure is not None:
        raise partition.failure.again()
    role = partition.role
    if not isinstance(role, Leading):
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return role


def _early_until_ms(partition: Partition, leader_epoch: LeaderEpoch, *, is_first_epoch: bool) -> int | None:
    before = partition.role
    if isinstance(before, Leading) and leader_epoch == partition.leader_epoch + 1:
        return before.early_until_ms  # In between nothing was sent to anybody else.
    within_ms = _FIRST_REQUESTS_COME_WITHIN_MS if is_first_epoch else _REQUESTS_END_WITHIN_MS
    return partition.replication.now_ms() + within_ms


class Leading(ReplicaRole):
    """The leader of one leader epoch."""

    __slots__ = ("_acks", "core", "early_until_ms", "followers", "is_first_epoch", "partition", "verifications")

    def __init__(
        self, partition: Partition, core: LeaderReplica, *, early_until_ms: int | None, is_first_epoch: bool
    ) -> None:
        self.partition = partition
        self.core = core
        #: Whether nobody has led the partition before.
        self.is_first_epoch = is_first_epoch
        #: Until when an earlier batch of a producer may still have to come; None once that has passed.
        self.early_until_ms = early_until_ms
        #: Transactions whose first records here are not written before their coordinator has confirmed them.
        self.verifications = PendingVerifications()
        #: Those that have asked for what comes after the log's end, or for a newer watermark.
        self.followers: dict[NodeId, FollowerWatch] = {}
        self._acks: AckTracker[CommitCallback] = AckTracker()

    @property
    def leader(self) -> PartitionLeader:
        return self.core.leader

    @property
    def isr(self) -> frozenset[NodeId]:
        return self.core.isr

    @property
    def others_have_its_records(self) -> bool:
        return len(self.core.isr) > 1

    @property
    def has_caught_up_with_its_epoch(self) -> bool:
        """Until then the watermark may be behind one that an earlier leader showed (KIP-207)."""
        return self.partition.high_watermark >= self.core.epoch_start_offset

    @property
    def is_settled(self) -> bool:
        return self.core.is_settled(self.partition.high_watermark)

    @property
    def is_alone_in_sync(self) -> bool:
        return self.core.is_alone_in_sync

    @property
    def may_get_batches_early(self) -> bool:
        """Whether a producer's earlier batch may still have to come.

        It may be under way to the leader before this one, or have come before this node knew of the topic. In a topic
        that is restored a batch says itself where it belongs.
        """
        if self.early_until_ms is None:
            return False
        if self.partition.replication.now_ms() >= self.early_until_ms:
            self.early_until_ms = None
            return False
        return not self.partition.settings.is_being_restored

    # Writes.

    def append(self, batches: memoryview, now_ms: int, *, acks_all: bool) -> AppendInfo:
        try:
            self.require_writable(acks_all=acks_all)
            return self.write(batches, [header for _, header in read_batches(batches)], now_ms)
        except KafkaError as error:
            self.partition.check_disk(error)
            raise

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendInfo:
        """End a producer's transaction. What was being verified for it comes too late."""
        self.require_writable(acks_all=True)
        partition = self.partition
        try:
            info = partition.log.append_marker(end, leader_epoch=partition.leader_epoch, now_ms=now_ms)
        except KafkaError as error:
            partition.check_disk(error)
            raise
        self.verifications.ended(end)
        self._appended()
        return info

    def require_writable(self, *, acks_all: bool) -> None:
        """Raises the error with which any write is refused now."""
        partition = self.partition
        if partition.failure is not None:
            raise partition.failure.again()
        if partition.role is not self:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if partition.room.refusal is not None:
            partition.room.require()
        refusal = self.core.check_writable(acks_all=acks_all)
        if refusal is not None:
            raise KafkaError(refusal)

    def write(self, batches: memoryview, headers: Sequence[BatchHeader], now_ms: int) -> AppendInfo:
        """Append what nothing but the log may refuse any more; ``headers`` are those of the batches."""
        partition = self.partition
        info = partition.log.append_as_leader(
            batches,
            headers,
            leader_epoch=partition.leader_epoch,
            now_ms=now_ms,
            keep_offsets=partition.settings.is_being_restored,
        )
        self._appended()
        return info

    def _appended(self) -> None:
        partition = self.partition
        if partition.requires_sync:
            partition.group_commit.request(partition)
        core = self.core
        if core.is_sole_replica:
            committed = core.append_alone(partition.log.log_end_offset, partition.high_watermark)
            if committed > partition.high_watermark:
                partition.advance_high_watermark(committed)
        else:
            self._appended_for_others()

    def _appended_for_others(self) -> None:
        partition, replication = self.partition, self.partition.replication
        self.step(LeaderAppended(log_end_offset=partition.log.log_end_offset, now_ms=replication.now_ms()))
        if not self.is_settled:
            replication.watch_lag(partition)
        self._tell_followers_of_records()

    # Those who wait for them.

    def when_committed(self, end_offset: Offset, done: CommitCallback) -> None:
        enough = self.core.has_enough_replicas
        _settle(self._acks.add(done, end_offset, self.partition.high_watermark, enough_replicas=enough))

    def when_readable(self, end_offset: Offset, done: CommitCallback) -> None:
        if self.is_alone_in_sync:
            _settle(self._acks.add_leader_only(done, end_offset, self.partition.high_watermark))
        else:
            done(None)

    def give_up(self, done: CommitCallback) -> None:
        self._acks.time_out(done)

    # What happens.

    def step(self, event: LeaderEvent) -> None:
        self._carry_out(self.core.step(event, self.partition.high_watermark))
        if isinstance(event, MembershipChanged) and not self.is_alone_in_sync:
            _settle(self._acks.release_leader_only())

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self.partition.advance_high_watermark(effect.offset)
            else:
                self.partition.replication.propose_isr(self.partition, effect)

    def high_watermark_advanced(self, offset: Offset) -> None:
        acks = self._acks.advance(offset, enough_replicas=self.core.has_enough_replicas)
        if acks:
            _settle(acks)
        if self.followers:
            self.log_start_moved()

    def log_start_moved(self) -> None:
        for follower in tuple(self.followers.values()):
            follower.has_watermark(self.partition)

    def looked_after(self) -> None:
        self._tell_followers_of_records()

    def _tell_followers_of_records(self) -> None:
        for follower in tuple(self.followers.values()):
            follower.has_records(self.partition)

    def synced(self) -> None:
        self.step(LeaderDurable(offset=self.partition.log.synced_end_offset))

    def reconfigured(self) -> None:
        self.step(MinInsyncReplicasChanged(min_insync_replicas=self.partition.settings.min_insync_replicas))

    def drop_idle(self) -> None:
        self.verifications.drop_idle()

    def failed(self, failure: KafkaError) -> None:
        for ack in self._acks.close(failure.code):
            ack.done(failure)

    def end(self) -> None:
        self.followers.clear()
        self.verifications.end_leadership()
        _settle(self._acks.close(ErrorCode.NOT_LEADER_OR_FOLLOWER))


def _settle(acks: list[Ack[CommitCallback]]) -> None:
    for ack in acks:
        ack.done(None if ack.error is None else KafkaError(ack.error))
