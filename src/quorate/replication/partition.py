"""One replica of a partition on this node: its log, its settings, its high watermark, and the role that it has.

The high watermark is the end of what is committed: on every replica that must have it and, with durability ``fsync``,
on their disks. Consumers never see beyond it, and ``acks=all`` is answered when it passes the write; so is ``acks=1``
while no other replica is in sync.

Which role a replica has comes from the metadata image alone (``partitions``): ``leading`` and ``following`` have
what leaders and followers do, by the rules of ``quorate.replication.core``.

==============  ======================================  ====================================================
role            it begins with                          who waits is told, when it ends
==============  ======================================  ====================================================
``Idle``        the start, ``wait_for_leader``,         nobody waits
                ``retire``
``Leading``     ``leading.lead``, in any role           writes: NOT_LEADER_OR_FOLLOWER; followers ask again
``Following``   ``following.follow``, in any role       nobody waits
==============  ======================================  ====================================================

Each begins in a new leader epoch, and no role is left for another in the same one. ``fail`` ends none of them: the
replica keeps its role and answers everything with ``failure`` until the node is restarted or the replica retires.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from quorate.kernel.settings import Durability
from quorate.metadata.core.image import TopicIdPartition
from quorate.records.control import TransactionEnd
from quorate.replication.core.divergence import ReplicaLog
from quorate.replication.core.leader_events import LeaderEvent, ProposeIsr
from quorate.replication.disk_room import DiskRoom
from quorate.replication.group_commit import GroupCommit
from quorate.replication.partition_settings import PartitionSettings
from quorate.replication.producers import DeferredProducers
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog
from quorate.storage.reading import DamagedRecords, UncheckedSegment

logger = logging.getLogger(__name__)

CommitCallback = Callable[[KafkaError | None], None]


class Watcher(Protocol):
    """Somebody who wants to know when there is more to read, such as a fetch that waits for bytes."""

    def partition_changed(self, partition: "Partition") -> None: ...

    def stop_waiting(self) -> None:
        """The node stops: make do with what there is."""
        ...


class IntegrityPort(Protocol):
    """Checks and repairs what lies on the disk."""

    def sound_again(
        self, partition: "Partition", error: UncheckedSegment | DamagedRecords
    ) -> "asyncio.Future[None] | None":
        """Done when what could not be read may be; None where nothing can be done about it."""
        ...


class ReplicationPort(Protocol):
    """What a partition asks of the node around it."""

    def now_ms(self) -> int:
        """Of a clock that does not jump."""
        ...

    def propose_isr(self, partition: "Partition", proposal: ProposeIsr) -> None: ...

    def watch_lag(self, partition: "Partition") -> None:
        """A follower may be behind: the leader wants to hear of the passing of time."""
        ...

    def synced_as_follower(self, partition: "Partition") -> None:
        """What was fetched is durable: more may be asked for."""
        ...

    def lost_its_disk(self, partition: "Partition", failure: KafkaError) -> None:
        """Nobody knows what the disk holds of this replica, while others have it."""
        ...


class ReplicaRole:
    """What a replica does at the moment. By itself a role takes no writes, and has nobody to tell of anything."""

    __slots__ = ()

    @property
    def others_have_its_records(self) -> bool:
        """Whether another replica has what is committed here."""
        return False

    @property
    def is_alone_in_sync(self) -> bool:
        return False

    def append(self, batches: memoryview, now_ms: int, *, acks_all: bool) -> AppendInfo:  # noqa: ARG002 - a leader needs it
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendInfo:  # noqa: ARG002 - a leader needs it
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def when_committed(self, end_offset: Offset, done: CommitCallback) -> None:  # noqa: ARG002 - a leader needs it
        done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def when_readable(self, end_offset: Offset, done: CommitCallback) -> None:  # noqa: ARG002 - a leader needs it
        done(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def give_up(self, done: CommitCallback) -> None:
        """Nobody waits where nobody may write."""

    def step(self, event: LeaderEvent) -> None:
        """It came too late: this node does not lead any more."""

    def synced(self) -> None: ...

    def high_watermark_advanced(self, offset: Offset) -> None: ...

    def log_start_moved(self) -> None: ...

    def looked_after(self) -> None: ...

    def reconfigured(self) -> None: ...

    def drop_idle(self) -> None: ...

    def failed(self, failure: KafkaError) -> None: ...

    def end(self) -> None: ...


class Idle(ReplicaRole):
    """Nobody leads, or this node has not heard yet who does."""

    __slots__ = ()


IDLE = Idle()


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
        #: Whether nothing counts before it is on the disk.
        self.requires_sync = durability is Durability.FSYNC
        self.group_commit = group_commit
        self.replication = replication
        self.leader_epoch: LeaderEpoch = NO_LEADER_EPOCH
        #: Never moves back while this node leads. After a start it is unknown: nothing above the log's start is shown.
        self.high_watermark = log.log_start_offset
        self.role: ReplicaRole = IDLE
        self.deferred = DeferredProducers()
        self._watchers: dict[Watcher, None] = {}
        self._after_retirement: Callable[[], None] | None = None
        #: Set when the replica cannot be served any more: deleted, moved away, or its disk failed.
        self.failure: KafkaError | None = None

    def __str__(self) -> str:
        return f"{self.identity.topic}-{self.identity.partition}"

    # Its role.

    def leave_role(self, leader_epoch: LeaderEpoch) -> None:
        """What it did ends here, and whoever waits for the leader that it was is told so: another epoch begins."""
        role, self.role = self.role, IDLE
        role.end()
        self.leader_epoch = leader_epoch

    def wait_for_leader(self, leader_epoch: LeaderEpoch) -> None:
        """Nobody leads: serve nothing until somebody does."""
        self.leave_role(leader_epoch)
        self.tell_watchers()

    def step(self, event: LeaderEvent) -> None:
        """Something happened that concerns the leader; nothing where this node does not lead."""
        if self.failure is None:
            self.role.step(event)

    def reconfigure(self, settings: PartitionSettings) -> None:
        self.settings = settings
        self.log.update_config(settings.log)
        if self.failure is None:
            self.role.reconfigured()

    # Writes, where this node leads.

    def append(self, batches: memoryview, now_ms: int, *, acks_all: bool = False) -> AppendInfo:
        """For a coordinator's own records. What producers send passes the gate of ``broker.produce`` first."""
        if self.failure is not None:
            raise self.failure.again()
        return self.role.append(batches, now_ms, acks_all=acks_all)

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendInfo:
        """End a producer's transaction."""
        if self.failure is not None:
            raise self.failure.again()
        return self.role.append_marker(end, now_ms)

    def when_committed(self, end_offset: Offset, done: CommitCallback) -> None:
        """Call back once the high watermark has reached ``end_offset``, or with the error that prevents it."""
        if self.failure is not None:
            done(self.failure)
        else:
            self.role.when_committed(end_offset, done)

    @property
    def is_alone_in_sync(self) -> bool:
        """Whether a write with ``acks=1`` waits until it can be read: nobody but this node decides when that is."""
        return self.role.is_alone_in_sync

    def when_readable(self, end_offset: Offset, done: CommitCallback) -> None:
        """The same for a write that asks for no other replica: it is also called back when one comes into sync."""
        if self.failure is not None:
            done(self.failure)
        else:
            self.role.when_readable(end_offset, done)

    def give_up(self, done: CommitCallback) -> None:
        """The write's time is up: do not call back any more."""
        self.role.give_up(done)

    def drop_idle(self) -> None:
        """Forget producers that were made to wait and did not retry."""
        self.role.drop_idle()
        if self.deferred.refusals:
            self.deferred.drop_expired(self.replication.now_ms())

    def advance_high_watermark(self, offset: Offset) -> None:
        """More is committed: answer those who wait for it, and tell readers and followers."""
        self.high_watermark = offset
        self.log.commit_transactions_up_to(offset)
        self.role.high_watermark_advanced(offset)
        if self._watchers:
            self.tell_watchers()

    # For readers.

    @property
    def replica_log(self) -> ReplicaLog:
        log = self.log
        return ReplicaLog(log_start_offset=log.log_start_offset, log_end_offset=log.log_end_offset, epochs=log.epochs)

    def sound_again(self, error: KafkaError) -> "asyncio.Future[None] | None":
        """Where a read met a segment that is being checked or repaired: done when it is worth another try."""
        if self.failure is None and isinstance(error, UncheckedSegment | DamagedRecords):
            return self._integrity.sound_again(self, error)
        return None

    def looked_after(self) -> None:
        """A segment was checked, or repaired: readers who wait for that can look again."""
        self.tell_watchers()
        self.role.looked_after()

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

    def tell_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.partition_changed(self)

    def delete_records_before(self, offset: Offset) -> Offset:
        """Move the log start forward; -1 means up to the high watermark. Returns the new log start."""
        target = self.high_watermark if offset == -1 else offset
        if not 0 <= target <= self.high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > self.log.log_start_offset:
            self.log.delete_records_before(target)
            self.role.log_start_moved()
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
        self.role = IDLE
        self.group_commit.forget(self)
        if self.group_commit.is_running(self):
            self._after_retirement = then
        else:
            then()

    def sync(self) -> None:
        self.log.sync()

    def synced(self) -> None:
        if self._after_retirement is not None:
            self._after_retirement()
        elif self.failure is None:
            self.role.synced()

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
        elif self.role.others_have_its_records:
            self.replication.lost_its_disk(self, failure)

    def fail(self, failure: KafkaError) -> None:
        """Serve no more, and tell everybody who waits why."""
        if self.failure is not None:
            return
        self.failure = failure
        self.role.failed(failure)
        self.tell_watchers()


class OfflinePartition(msgspec.Struct, frozen=True):
    """A replica whose log could not be opened: it answers everything with the reason."""

    identity: TopicIdPartition
    failure: KafkaError
