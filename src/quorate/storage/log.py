"""A partition's log on disk: what a broker, or a Raft node, appends to and reads from.

All methods block and belong to one thread, the loop's, except ``sync``, which may run in a worker thread while the loop
appends and reads (see ``durability``). Nothing is durable before ``sync`` has returned, and no append waits
for it. Time comes in as an argument.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicId
from quorate.kernel.ports import Disk, is_out_of_descriptors
from quorate.storage import (
    appending,
    cleaner,
    reading,
    segment_checks,
    segment_repair,
    small_files,
    timestamps,
    trimming,
)
from quorate.storage.checkpoints import EpochStart, write_epochs, write_topic_id
from quorate.storage.config import LogConfig
from quorate.storage.damage import DamagedRange
from quorate.storage.file_names import LEADER_EPOCH_CHECKPOINT, PRODUCER_SNAPSHOT, path_of
from quorate.storage.partition_folders import remove_logs
from quorate.storage.producer_snapshots import encode_snapshot
from quorate.storage.recovery import RecoverySummary, recover
from quorate.storage.segment import Segment
from quorate.storage.segment_recovery import seal
from quorate.storage.state import LogState, changes_log


class PartitionLog(LogState):
    """The state of a log, and all that can be done with it.

    The methods that take more than a few lines are functions of the module that owns their concern, and are listed
    here. Raises ``KafkaError``: KAFKA_STORAGE_ERROR where the disk fails, for good if what it holds is then unknown.
    """

    __slots__ = ("recovery",)

    recovery: RecoverySummary

    @classmethod
    def open(
        cls, disk: Disk, directory: str, config: LogConfig, *, trusts_disk: bool = True, trusts_epochs: bool = True
    ) -> "PartitionLog":
        """Open the log, making its folder if there is none, and recover it after any end it may have had.

        Where the disk is not trusted, a segment is not read before it was checked: see ``segment_checks``. With
        ``trusts_epochs=False`` a batch is kept only if the sync that made it count has stored its epoch.
        """
        log, summary = recover(cls, disk, directory, config, trusts_disk=trusts_disk, trusts_epochs=trusts_epochs)
        log.recovery = summary
        return log

    # Writing and reading.

    append_as_leader = appending.append_as_leader
    append_marker = appending.append_marker
    append_as_follower = appending.append_as_follower
    read = reading.read
    aborted_transactions = reading.aborted_transactions
    probes_for_timestamp = timestamps.probes_for_timestamp
    highest_timestamps = timestamps.highest_timestamps

    def sync(self) -> None:
        """Make everything that was appended before the call durable, and then say so in ``synced_end_offset``.

        Where no file can be opened for want of a descriptor, the log stays usable: the sync can be tried again.
        """
        self.require_usable()
        try:
            self.durability.sync(self.tail)
        except OSError as error:
            if is_out_of_descriptors(error):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot sync {self.directory}: {error}") from error
            raise self.fail(error) from error

    @property
    def synced_end_offset(self) -> Offset:
        """Everything below is durable."""
        return self.durability.synced_end_offset

    @property
    def is_usable(self) -> bool:
        """False for good once the disk has failed and it is unknown what it holds."""
        return self.failure is None

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    def update_config(self, config: LogConfig) -> None:
        self.config = config

    def store_topic_id(self, topic_id: TopicId) -> None:
        """Store the id of the log's topic beside it; durable with the next sync, before any record is."""
        self.durability.note_written(write_topic_id(self.disk, self.directory, topic_id))

    # Leader epochs, producers and their transactions.

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self.epoch_cache.latest_epoch

    @property
    def epochs(self) -> list[EpochStart]:
        """Every leader epoch that the log knows, and where it starts; both rise."""
        return self.epoch_cache.entries()

    def assign_epoch_start(self, epoch: LeaderEpoch) -> None:
        """On becoming leader: the epoch starts at the end of the log."""
        if self.epoch_cache.assign(epoch, self.log_end_offset):
            self.durability.note_epochs(self.epoch_cache.entries())

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which the record at the offset was written; -1 where none is known."""
        return self.epoch_cache.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochStart:
        """As OffsetForLeaderEpoch answers: the largest epoch not above the asked one, and its end; or -1, -1."""
        return self.epoch_cache.end_offset_for(epoch, self.log_end_offset)

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first record of a transaction that has not ended for good; readers of committed records stop there."""
        return self.producers.open_transactions.first_unstable_offset

    def commit_transactions_up_to(self, high_watermark: Offset) -> None:
        """Transactions that ended below the high watermark have ended for good."""
        self.producers.open_transactions.commit_up_to(high_watermark)

    def expire_producers(self, now_ms: int) -> None:
        self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # Taking records away.

    truncate_to = trimming.truncate_to
    truncate_fully_and_start_at = trimming.truncate_fully_and_start_at
    delete_records_before = trimming.delete_records_before
    apply_retention = trimming.apply_retention
    plan_cleaning = cleaner.plan_cleaning
    install = cleaner.install

    # Damage: found by checks in worker threads, and repaired from another replica.

    begin_check = segment_checks.begin_check
    note_check = segment_checks.note_check
    begin_summing = segment_checks.begin_summing
    note_summed = segment_checks.note_summed
    plan_repair = segment_repair.plan_repair
    install_repair = segment_repair.install_repair
    repair_small_files = small_files.repair_small_files

    @property
    def stored_segments(self) -> list[Segment]:
        """The segments that hold something, or should, in order."""
        return [each for each in self.segments if each.size_bytes or each.damage or not each.is_checked]

    @property
    def damage(self) -> list[DamagedRange]:
        """All damage that is known, in order."""
        return [damaged for segment in self.segments for damaged in segment.damage]

    # The end of a log's life in this process.

    @changes_log
    def close(self) -> None:
        """Leave everything durable and complete, so that the next open has nothing to check."""
        active = self.segments.active
        if active.is_created:
            seal(active, self.log_end_offset, self.config.index_interval_bytes)
            for file in active.files():
                file.sync()
            self.durability.note_file_created()
        self.durability.sync(self.tail)
        if active.is_created:
            # The checksums of the other segments are written by the scrub, at its own pace.
            segment_checks.sum_up(self, active, self.log_end_offset)
        if self.durability.recovery_point < self.log_end_offset:
            self._checkpoint(self.log_end_offset)
        self.release()

    def _checkpoint(self, end: Offset) -> None:
        self.disk.replace(path_of(self.directory, end, PRODUCER_SNAPSHOT), encode_snapshot(self.producers))
        write_epochs(self.disk, f"{self.directory}/{LEADER_EPOCH_CHECKPOINT}", self.epoch_cache.entries())
        self.durability.checkpoint(end)

    def release(self) -> None:
        """Hold no file open any more: the log is about to be removed, or nobody uses it now."""
        for segment in self.segments:
            segment.release()

    def delete(self) -> None:
        """Take the folder out of the way in one step and remove it; one that is half removed is not taken for a log."""
        self.release()
        remove_logs(self.disk, [self.directory])
