"""One partition on this node: its log, its high watermark, and those who wait for it to move.

The high watermark is the end of what is committed. With one replica that is what the durability setting asks for: what
is on the disk (``fsync``), or what the operating system has (``os``). Consumers never see beyond it, and ``acks=all``
is answered when it passes the write.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from quorate.broker.config import Durability
from quorate.broker.group_commit import GroupCommit
from quorate.broker.partition_settings import PartitionSettings
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.metadata.image import TopicPartition
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog

logger = logging.getLogger(__name__)

CommitCallback = Callable[[KafkaError | None], None]


class Watcher(Protocol):
    """Somebody who wants to know when there is more to read, such as a fetch that waits for bytes."""

    def partition_changed(self, partition: "Partition") -> None: ...

    def stop_waiting(self) -> None:
        """The node stops: make do with what there is."""
        ...


class Partition:
    def __init__(
        self,
        identity: TopicPartition,
        log: PartitionLog,
        settings: PartitionSettings,
        leader_epoch: LeaderEpoch,
        *,
        durability: Durability,
        group_commit: GroupCommit,
    ) -> None:
        self.identity = identity
        self.log = log
        self.settings = settings
        self.leader_epoch = leader_epoch
        self._durability = durability
        self._group_commit = group_commit
        #: Never moves back while this node leads.
        self.high_watermark = self._committed_end()
        #: Writes in offset order that wait for the high watermark to reach the offset after them.
        self._uncommitted: deque[tuple[Offset, CommitCallback]] = deque()
        self._watchers: set[Watcher] = set()
        self._after_retirement: Callable[[], None] | None = None
        #: Set when the partition cannot be served any more: deleted, or its disk failed.
        self.failure: KafkaError | None = None
        if self.high_watermark < log.log_end_offset:
            group_commit.request(self)

    def __str__(self) -> str:
        return f"{self.identity.topic}-{self.identity.partition}"

    def become_leader(self, leader_epoch: LeaderEpoch) -> None:
        if leader_epoch != self.leader_epoch:
            self.leader_epoch = leader_epoch
            self.log.assign_epoch_start(leader_epoch)

    def reconfigure(self, settings: PartitionSettings) -> None:
        self.settings = settings
        self.log.update_config(settings.log)

    def append(self, batches: memoryview, now_ms: int) -> AppendInfo:
        if self.failure is not None:
            raise self.failure
        info = self.log.append_as_leader(batches, leader_epoch=self.leader_epoch, now_ms=now_ms)
        if self._durability is Durability.FSYNC:
            self._group_commit.request(self)
        else:
            self._advance()
        return info

    def when_committed(self, end_offset: Offset, callback: CommitCallback) -> None:
        """Call back once the high watermark has reached ``end_offset``, or with the error that prevents it."""
        if self.failure is not None:
            callback(self.failure)
        elif self.high_watermark >= end_offset:
            callback(None)
        else:
            self._uncommitted.append((end_offset, callback))

    def watch(self, watcher: Watcher) -> None:
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

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
        return self.log.log_start_offset

    def check_leader_epoch(self, claimed: int) -> None:
        """A client that names an epoch must name the current one (KIP-320); -1 names none."""
        if claimed in (-1, self.leader_epoch):
            return
        if claimed < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def retire(self, failure: KafkaError, then: Callable[[], None]) -> None:
        """Serve no more, tell everybody who waits, and call ``then`` once no sync touches the log any more."""
        self._fail(failure)
        self._group_commit.forget(self)
        if self._group_commit.is_running(self):
            self._after_retirement = then
        else:
            then()

    def sync(self) -> None:
        self.log.sync()

    def synced(self) -> None:
        if self._after_retirement is not None:
            self._after_retirement()
        elif self.failure is None:
            self._advance()

    def sync_failed(self, error: Exception) -> None:
        """After a failed sync nobody knows what the disk holds: the partition stops until the node is restarted."""
        self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The log of {self} could not be synced: {error}"))
        if self._after_retirement is not None:
            self._after_retirement()

    def _committed_end(self) -> Offset:
        return self.log.synced_end_offset if self._durability is Durability.FSYNC else self.log.log_end_offset

    def _advance(self) -> None:
        committed = self._committed_end()
        if committed <= self.high_watermark:
            return
        self.high_watermark = committed
        while self._uncommitted and self._uncommitted[0][0] <= committed:
            self._uncommitted.popleft()[1](None)
        self._tell_watchers()

    def _fail(self, failure: KafkaError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        while self._uncommitted:
            self._uncommitted.popleft()[1](failure)
        self._tell_watchers()

    def _tell_watchers(self) -> None:
        for watcher in tuple(self._watchers):
            watcher.partition_changed(self)


class OfflinePartition(msgspec.Struct, frozen=True):
    """A partition whose log could not be opened: it answers everything with the reason."""

    identity: TopicPartition
    failure: KafkaError
