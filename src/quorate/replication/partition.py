"""One replica of a partition on this node: its log, its part as leader or follower, and those who wait for it.

The high watermark is the end of what is committed: on every replica that must have it and, with durability ``fsync``,
on their disks. Consumers never see beyond it, and ``acks=all`` is answered when it passes the write; so is ``acks=1``
while no other replica is in sync. Which part this node plays comes from the metadata image alone; the rules of both
parts are in ``quorate.replication.core``.
"""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import TopicIdPartition
from quorate.records.batch import BatchHeader, read_batches
from quorate.records.control import TransactionEnd
from quorate.replication.core.acks import Ack, AckTracker
from quorate.replication.core.follower import FollowerReplica
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
from quorate.replication.core.replica_fetch import ReplicaLog
from quorate.replication.disk_room import DiskRoom
from quorate.replication.first_writes import FirstWrites
from quorate.replication.group_commit import GroupCommit
from quorate.replication.partition_ports import FollowerWatch, IntegrityPort, ReplicationPort, Watcher
from quorate.replication.partition_settings import PartitionSettings
from quorate.replication.put_off import PutOff
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords, UncheckedSegment

logger = logging.getLogger(__name__)

_NEW_PARTITION = 0
#: Java waits half a minute for an answer by default, and librdkafka a minute.
_REQUESTS_END_WITHIN_MS = 65_000
#: What a producer sent right behind a batch that this node refused, as it did not know the topic yet, has come by then.
_FIRST_REQUESTS_COME_WITHIN_MS = 2_000

CommitCallback = Callable[[KafkaError | None], None]


class Partition:
    def __init__(
        self,
        identity: TopicIdPartition,
        log: PartitionLog,
        settings: PartitionSettings,
        *,
        durability: Durability,
        group_commit: GroupCommit,
        replication: ReplicationPort,
        room: DiskRoom,
        integrity: IntegrityPort,
    ) -> None:
        self.identity = identity
        self._integrity = integrity
        self.room = room
        self.log = log
        self.settings = settings
        self._durability = durability
        self._group_commit = group_commit
        self._replication = replication
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        #: Never moves back while this node leads. After a start it is unknown: nothing above the log's start is shown.
        self.high_watermark = log.log_start_offset
        self.leading: LeaderReplica | None = None
        #: Whether nobody has led the partition before.
        self.is_first_reign = False
        #: Until when an earlier batch of a producer may still have to come; None once that has passed.
        self._early_until_ms: int | None = None
        self._acks: AckTracker[CommitCallback] = AckTracker()
        self.following: FollowerReplica | None = None
        #: Followers that have asked for what comes after the log's end, or for a newer watermark.
        self.asking_followers: dict[NodeId, FollowerWatch] = {}
        #: Transactions whose first records here are not written before their coordinator has confirmed them.
        self.first_writes = FirstWrites()
        #: From the first refusal on; most partitions never have one.
        self._put_off: PutOff | None = None
        self._watchers: dict[Watcher, None] = {}
        self._after_retirement: Callable[[], None] | None = None
        #: Set when the replica cannot be served any more: deleted, moved away, or its disk failed.
        self.failure: KafkaError | None = None

    def __str__(self) -> str:
        return f"{self.identity.topic}-{self.identity.partition}"

    # Which part to play.

    def lead(self, start: LeaderStart, config: ReplicationConfig) -> None:
        """Take writes in the leader epoch of ``start``; its offsets are filled in here."""
        # By the partition epoch: the leader epochs of a topic that was made anew start above those of its namesakes.
        self.is_first_reign = start.membership.partition_epoch == _NEW_PARTITION
        is_own_successor = self.leading is not None and start.leader.leader_epoch == self.leader_epoch + 1
        self._leave_part()
        self.leader_epoch = start.leader.leader_epoch
        self.log.assign_epoch_start(self.leader_epoch)
        log_end = self.log.log_end_offset
        start = msgspec.structs.replace(
            start,
            log_end_offset=log_end,
            durable_offset=self.log.synced_end_offset,
            high_watermark=min(max(self.high_watermark, self.log.log_start_offset), log_end),
            min_insync_replicas=self.settings.min_insync_replicas,
        )
        self.leading = LeaderReplica(start, config)
        if not is_own_successor:
            patience_ms = _FIRST_REQUESTS_COME_WITHIN_MS if self.is_first_reign else _REQUESTS_END_WITHIN_MS
            self._early_until_ms = self._replication.now_ms() + patience_ms
        self.high_watermark = self.leading.advanced(start.high_watermark)
        self.log.commit_transactions_up_to(self.high_watermark)
        self._acks = AckTracker()
        if self.log.synced_end_offset < log_end:
            self.request_sync()
        self._tell_watchers()

    def follow(self, leader: PartitionLeader, *, is_unclean: bool) -> None:
        self._leave_part()
        self.leader_epoch = leader.leader_epoch
        self.following = FollowerReplica(leader, is_unclean=is_unclean)
        if not self.may_ask:
            self.request_sync()
        self._tell_watchers()

    def wait_for_leader(self, leader_epoch: LeaderEpoch) -> None:
        """Nobody leads: serve nothing until somebody does."""
        self._leave_part()
        self.leader_epoch = leader_epoch
        self._tell_watchers()

    def _leave_part(self) -> None:
        self.leading = None
        self.following = None
        self.asking_followers.clear()
        self.first_writes.end_reign()
        self._settle(self._acks.close(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def require_leading(self) -> LeaderReplica:
        if self.failure is not None:
            raise self.failure
        if self.leading is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return self.leading

    @property
    def may_get_batches_early(self) -> bool:
        """Whether a producer's earlier batch may still have to come.

        It may be under way to the leader before this one, or have come before this node knew of the topic. In a topic
        that is restored a batch says itself where it belongs.
        """
        if self._early_until_ms is None:
            return False
        if self._replication.now_ms() >= self._early_until_ms:
            self._early_until_ms = None
            return False
        return not self.settings.is_being_restored

    def reconfigure(self, settings: PartitionSettings) -> None:
        self.settings = settings
        self.log.update_config(settings.log)
        self.step(MinInsyncReplicasChanged(min_insync_replicas=settings.min_insync_replicas))

    # As leader.

    def append(
        self,
        batches: memoryview,
        now_ms: int,
        *,
        acks_all: bool = False,
        header: BatchHeader | None = None,
        admit: Callable[[], None] | None = None,
    ) -> AppendInfo:
        """``header``: of the only batch, where somebody has read it. ``admit`` may refuse them."""
        if self._put_off is not None:
            self._put_off.require_turn(batches, self._replication.now_ms(), self.log.producers)
        try:
            if admit is not None:
                admit()
            leading = self._require_writable(acks_all=acks_all)
            headers = [header] if header is not None else [each for _, each in read_batches(batches)]
            self._require_no_earlier_batch(headers[0])
            info = self.log.append_as_leader(
                batches,
                headers,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                keep_offsets=self.settings.is_being_restored,
            )
        except KafkaError as error:
            self._refused(batches, error)
            self.check_disk(error)
            raise
        if self._put_off is not None:
            self._put_off.written(batches)
        self._appended(leading)
        return info

    def _require_no_earlier_batch(self, header: BatchHeader) -> None:
        """While batches may come early, a producer that is not known has written before where it starts elsewhere."""
        if (
            header.producer_id >= 0
            and header.base_sequence > 0
            and self.log.producers.get(header.producer_id) is None
            and self.may_get_batches_early
        ):
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} is not known and sends sequence {header.base_sequence}",
            )

    def refuse_as_follower(self, batches: memoryview) -> None:
        """A producer takes this node for the leader, which it may become: what comes behind the batch has to wait."""
        self._refused(batches, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _refused(self, batches: memoryview, error: KafkaError) -> None:
        if self._put_off is None:
            self._put_off = PutOff()
        self._put_off.refused(batches, error, self._replication.now_ms())

    def drop_idle(self) -> None:
        """Forget producers that were made to wait and did not come again."""
        self.first_writes.drop_idle()
        if self._put_off is not None and self._put_off.is_empty_at(self._replication.now_ms()):
            self._put_off = None

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendInfo:
        """End a producer's transaction. What was being verified for it comes too late."""
        leading = self._require_writable(acks_all=True)
        try:
            info = self.log.append_marker(end, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except KafkaError as error:
            self.check_disk(error)
            raise
        self.first_writes.ended(end)
        self._appended(leading)
        return info

    def _require_writable(self, *, acks_all: bool) -> LeaderReplica:
        leading = self.leading
        if leading is None or self.failure is not None:
            leading = self.require_leading()
        if self.room.refusal is not None:
            self.room.require()
        refusal = leading.check_writable(acks_all=acks_all)
        if refusal is not None:
            raise KafkaError(refusal)
        return leading

    def _appended(self, leading: LeaderReplica) -> None:
        if self._durability is Durability.FSYNC:
            self.request_sync()
        if leading.is_sole_replica:
            committed = leading.append_alone(self.log.log_end_offset, self.high_watermark)
            if committed > self.high_watermark:
                self.advance_high_watermark(committed)
        else:
            self._appended_for_others(leading)

    def _appended_for_others(self, leading: LeaderReplica) -> None:
        appended = LeaderAppended(log_end_offset=self.log.log_end_offset, now_ms=self._replication.now_ms())
        self._carry_out(leading.step(appended, self.high_watermark))
        if not leading.is_settled(self.high_watermark):
            self._replication.is_unsettled(self)
        for watch in tuple(self.asking_followers.values()):
            watch.has_records(self)

    def when_committed(self, end_offset: Offset, callback: CommitCallback) -> None:
        """Call back once the high watermark has reached ``end_offset``, or with the error that prevents it."""
        if self.failure is not None:
            callback(self.failure)
        else:
            enough = self.leading is not None and self.leading.has_enough_replicas
            self._settle(self._acks.add(callback, end_offset, self.high_watermark, enough_replicas=enough))

    @property
    def has_caught_up_with_its_epoch(self) -> bool:
        """A leader's watermark may be behind one that an earlier leader showed, until then (KIP-207)."""
        return self.leading is None or self.high_watermark >= self.leading.epoch_start_offset

    @property
    def is_alone_in_sync(self) -> bool:
        """Whether a write with ``acks=1`` waits until it can be read: nobody but this node decides when that is."""
        return self.leading is not None and self.leading.is_alone_in_sync

    def when_readable(self, end_offset: Offset, callback: CommitCallback) -> None:
        """The same for a write that asks for no other replica: it is also called back when one comes into sync."""
        if self.failure is not None:
            callback(self.failure)
        elif self.leading is None or self.is_alone_in_sync:
            self._settle(self._acks.add_leader_only(callback, end_offset, self.high_watermark))
        else:
            callback(None)

    def give_up(self, callback: CommitCallback) -> None:
        """The write's time is up: do not call back any more."""
        self._acks.time_out(callback)

    def step(self, event: LeaderEvent) -> None:
        """Something happened that concerns the leader; nothing where this node does not lead."""
        if self.leading is not None and self.failure is None:
            self._carry_out(self.leading.step(event, self.high_watermark))
            if isinstance(event, MembershipChanged) and not self.is_alone_in_sync:
                self._settle(self._acks.release_leader_only())

    def _carry_out(self, effects: list[LeaderEffect]) -> None:
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self.advance_high_watermark(effect.offset)
            else:
                self._replication.propose_isr(self, effect)

    def advance_high_watermark(self, offset: Offset) -> None:
        """More is committed: answer those who wait for it, and tell readers and followers."""
        self.high_watermark = offset
        self.log.commit_transactions_up_to(offset)
        enough = self.leading is None or self.leading.has_enough_replicas
        acks = self._acks.advance(offset, enough_replicas=enough)
        if acks:
            self._settle(acks)
        if self._watchers:
            self._tell_watchers()
        if self.asking_followers:
            for watch in tuple(self.asking_followers.values()):
                watch.has_watermark(self)

    # As follower.

    @property
    def replica_log(self) -> ReplicaLog:
        log = self.log
        return ReplicaLog(log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset, epochs=log.epochs)

    @property
    def may_ask(self) -> bool:
        """Whether a fetch may say where this log ends: with ``fsync`` only once all of it is on the disk."""
        return self._durability is Durability.OS or self.log.synced_end_offset >= self.log.log_end_offset

    # For readers.

    def sound_again(self, error: KafkaError) -> "asyncio.Future[None] | None":
        """Where a read met a segment that is being checked or repaired: done when it is worth another try."""
        if self.failure is None and isinstance(error, UncheckedSegment | DamagedRecords):
            return self._integrity.sound_again(self, error)
        return None

    def looked_after(self) -> None:
        """A segment was checked, or repaired: readers who wait for that can look again."""
        self._tell_watchers()
        for watch in tuple(self.asking_followers.values()):
            watch.has_records(self)

    @property
    def last_stable_offset(self) -> Offset:
        """Where readers of committed records stop: before the first open transaction, at the high watermark at last."""
        first_unstable = self.log.first_unstable_offset
        if first_unstable is None or first_unstable >= self.high_watermark:
            return self.high_watermark
        return max(first_unstable, self.log.log_start_offset)

    def watch(self, watcher: Watcher) -> None:
        self._watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.pop(watcher, None)

    def release_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.stop_waiting()

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log start forward; -1 means up to the high watermark. Returns the new log start."""
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > self.log.log_start_offset:
            self.log.delete_records_before(target)
            for watch in tuple(self.asking_followers.values()):
                watch.has_watermark(self)
        return self.log.log_start_offset

    def check_leader_epoch(self, claimed: int) -> None:
        """A client that names an epoch must name the current one (KIP-320); -1 names none."""
        if claimed in (-1, self.leader_epoch):
            return
        if claimed < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    # Its end, and its disk.

    def retire(self, failure: KafkaError, then: Callable[[], None]) -> None:
        """Serve no more, tell everybody who waits, and call ``then`` once no sync touches the log any more."""
        self.fail(failure)
        self._group_commit.forget(self)
        if self._group_commit.is_running(self):
            self._after_retirement = then
        else:
            then()

    def request_sync(self) -> None:
        self._group_commit.request(self)

    def sync(self) -> None:
        self.log.sync()

    def synced(self) -> None:
        if self._after_retirement is not None:
            self._after_retirement()
        elif self.failure is None:
            if self.leading is not None:
                self.step(LeaderDurable(offset=self.log.synced_end_offset))
            elif self.log.synced_end_offset >= self.log.log_end_offset:
                self._replication.synced_as_follower(self)

    def check_disk(self, error: Exception) -> None:
        """Something failed: where the log cannot be used any more, nor can the replica."""
        self.room.write_failed(error.__cause__)
        if self.failure is None and not self.log.is_usable:
            self.sync_failed(error)

    def sync_failed(self, error: Exception) -> None:
        """After a failed sync nobody knows what the disk holds: the replica stops until the node is restarted."""
        failure = KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self} is offline since its disk failed: {error}"
        )
        self.fail(failure)
        if self._after_retirement is not None:
            self._after_retirement()
        elif self.following is not None or (self.leading is not None and len(self.leading.isr) > 1):
            self._replication.lost_its_disk(self, failure)

    def fail(self, failure: KafkaError) -> None:
        """Serve no more, and tell everybody who waits why."""
        if self.failure is not None:
            return
        self.failure = failure
        for ack in self._acks.close(failure.code):
            ack.done(failure)
        self._tell_watchers()

    def _settle(self, acks: list[Ack[CommitCallback]]) -> None:
        for ack in acks:
            ack.done(None if ack.error is None else KafkaError(ack.error))

    def _tell_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.partition_changed(self)


class OfflinePartition(msgspec.Struct, frozen=True):
    """A replica whose log could not be opened: it answers everything with the reason."""

    identity: TopicIdPartition
    failure: KafkaError
