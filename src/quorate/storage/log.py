"""A partition's log on disk: what a broker, or a Raft node, appends to and reads from.

All methods block and belong to one thread, the loop's, except ``sync``, which may run in a worker thread while the loop
goes on appending and reading (see ``durability``). Nothing is durable before ``sync`` has returned, and no append waits
for it. Time comes in as an argument.
"""

from collections.abc import Iterator, Sequence

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, TopicId
from quorate.kernel.ports import Buffer, Disk, is_out_of_descriptors
from quorate.records.batch import BatchHeader
from quorate.records.control import TransactionEnd
from quorate.storage import (
    aborted_reads,
    appending,
    cleaner,
    reading,
    segment_checks,
    segment_repair,
    small_files,
    timestamps,
    trimming,
)
from quorate.storage.appending import AppendInfo
from quorate.storage.checkpoints import EpochStart, write_epochs, write_topic_id
from quorate.storage.cleaner import CleanedLog, CleaningPlan
from quorate.storage.config import LogConfig
from quorate.storage.damage import DamagedRange
from quorate.storage.file_names import LEADER_EPOCH_CHECKPOINT, PRODUCER_SNAPSHOT, path_of
from quorate.storage.partition_folders import remove_logs
from quorate.storage.producer_snapshots import encode_snapshot
from quorate.storage.producer_state import ProducerStates
from quorate.storage.reading import LogSlice
from quorate.storage.recovery import RecoverySummary, recover
from quorate.storage.segment import Segment
from quorate.storage.segment_checks import SegmentCheck, SegmentReport
from quorate.storage.segment_checksums import SummedLog
from quorate.storage.segment_recovery import seal
from quorate.storage.segment_repair import RepairedSegment, RepairPlan
from quorate.storage.state import LogState
from quorate.storage.timestamps import TimeProbe
from quorate.storage.transactions import AbortedTransaction


class PartitionLog:
    """Raises ``KafkaError``: KAFKA_STORAGE_ERROR where the disk fails, for good if what it holds is then unknown."""

    __slots__ = ("_state", "recovery")

    def __init__(self, state: LogState, recovery: RecoverySummary) -> None:
        self._state = state
        self.recovery = recovery

    @classmethod
    def open(
        cls, disk: Disk, directory: str, config: LogConfig, *, trusts_disk: bool = True, trusts_epochs: bool = True
    ) -> "PartitionLog":
        """Open the log, making its folder if there is none, and recover it from whatever its last end was.

        Where the disk is not trusted, what is found there is not read before it was checked: see ``begin_check``. Where
        nothing counts before a sync has stored its epoch, a batch of an epoch that was not stored is not kept.
        """
        return cls(*recover(disk, directory, config, trusts_disk=trusts_disk, trusts_epochs=trusts_epochs))

    @property
    def directory(self) -> str:
        return self._state.directory

    @property
    def config(self) -> LogConfig:
        return self._state.config

    def update_config(self, config: LogConfig) -> None:
        self._state.config = config

    @property
    def log_start_offset(self) -> Offset:
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        return self._state.log_end_offset

    @property
    def synced_end_offset(self) -> Offset:
        """Everything below is durable."""
        return self._state.durability.synced_end_offset

    @property
    def is_usable(self) -> bool:
        """False for good once the disk has failed so that nobody knows what it holds."""
        return self._state.failure is None

    @property
    def size_bytes(self) -> int:
        return self._state.segments.size_bytes

    @property
    def latest_epoch(self) -> LeaderEpoch:
        return self._state.epochs.latest_epoch

    @property
    def epochs(self) -> list[EpochStart]:
        """Every leader epoch that the log knows, and where it starts; both rise."""
        return self._state.epochs.entries()

    @property
    def producers(self) -> ProducerStates:
        """To look at, not to change."""
        return self._state.producers

    def append_as_leader(
        self,
        batches: memoryview,
        headers: Sequence[BatchHeader],
        *,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        keep_offsets: bool = False,
    ) -> AppendInfo:
        """Give the batches their offsets, in place, and write them; ``headers`` are theirs, their CRCs checked.

        With ``keep_offsets`` they have them, and must follow the end of the log. Raises MESSAGE_TOO_LARGE,
        INVALID_TIMESTAMP, and what ``ProducerStates.check`` finds; then nothing has changed.
        """
        state = self._state
        if state.failure is not None:
            state.require_usable()
        return appending.append_as_leader(
            state, batches, headers, leader_epoch=leader_epoch, now_ms=now_ms, keep_offsets=keep_offsets
        )

    def append_marker(self, end: TransactionEnd, *, leader_epoch: LeaderEpoch, now_ms: int) -> AppendInfo:
        """Write the end of a producer's transaction, as leader.

        Raises INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED where the marker comes too late.
        """
        self._state.require_usable()
        return appending.append_marker(self._state, end, leader_epoch=leader_epoch, now_ms=now_ms)

    def append_as_follower(self, batches: Buffer) -> AppendInfo:
        """Write batches as their leader has them. Checks the CRCs, and that the offsets follow."""
        self._state.require_usable()
        return appending.append_as_follower(self._state, batches)

    def read(
        self, offset: Offset, *, max_bytes: int, up_to_offset: Offset, minimum_one_batch: bool = False
    ) -> LogSlice:
        """Find whole batches from the one that holds ``offset`` on, all of them below ``up_to_offset``.

        As in Kafka the first batch may start before the offset, and the slice ends with its segment at the latest.
        With ``minimum_one_batch`` the first batch is in it even if it is larger than ``max_bytes``.
        """
        self._state.require_usable()
        return reading.read(
            self._state,
            offset,
            max_bytes=max_bytes,
            up_to_offset=up_to_offset,
            minimum_one_batch=minimum_one_batch,
        )

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first record of a transaction that has not ended for good; readers of committed records stop there."""
        return self._state.producers.open_transactions.first_unstable_offset

    def commit_transactions_up_to(self, high_watermark: Offset) -> None:
        """What ended below the high watermark has ended for good."""
        self._state.producers.open_transactions.commit_up_to(high_watermark)

    def aborted_transactions(self, piece: LogSlice, offset: Offset) -> list[AbortedTransaction]:
        """Those with records in what ``read`` has found from ``offset`` on, by their first offsets."""
        return aborted_reads.aborted_transactions(self._state, piece, offset)

    def sync(self) -> None:
        """Make everything that was appended before the call durable, and then say so in ``synced_end_offset``.

        Where no file can be opened for want of a descriptor, the log stays usable: the sync can be tried again.
        """
        state = self._state
        state.require_usable()
        try:
            state.durability.sync(state.tail)
        except OSError as error:
            if is_out_of_descriptors(error):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot sync {state.directory}: {error}") from error
            raise state.fail(error) from error

    def store_topic_id(self, topic_id: TopicId) -> None:
        """Say beside the log whose it is; durable with the next sync, before anything in it is."""
        state = self._state
        state.durability.note_written(write_topic_id(state.disk, state.directory, topic_id))

    def probes_for_timestamp(self, timestamp_ms: int) -> Iterator[TimeProbe | None]:
        """Where a worker has to look, in order, for the first record at or after the time; None where nothing can be.

        The log may change between two of them.
        """
        return timestamps.probes_for_timestamp(self._state, timestamp_ms)

    def highest_timestamps(self) -> Iterator[int]:
        """Of each segment, -1 where none has a time. The log may change between two of them."""
        return timestamps.highest_timestamps(self._state)

    def assign_epoch_start(self, epoch: LeaderEpoch) -> None:
        """On becoming leader: the epoch starts at the end of the log."""
        if self._state.epochs.assign(epoch, self._state.log_end_offset):
            self._state.durability.note_epochs(self._state.epochs.entries())

    def epoch_at(self, offset: Offset) -> LeaderEpoch:
        """The epoch in which the record at the offset was written; -1 where none is known."""
        return self._state.epochs.epoch_at(offset)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochStart:
        """As OffsetForLeaderEpoch answers: the largest epoch not above the asked one, and where it ends; or -1, -1."""
        return self._state.epochs.end_offset_for(epoch, self._state.log_end_offset)

    def truncate_to(self, offset: Offset) -> None:
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            trimming.truncate_to(self._state, offset)

    def truncate_fully_and_start_at(self, offset: Offset) -> None:
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            trimming.truncate_fully_and_start_at(self._state, offset)

    def delete_records_before(self, offset: Offset) -> None:
        """Move the start of the log up, durably. Raises OFFSET_OUT_OF_RANGE beyond the end."""
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            trimming.delete_records_before(self._state, offset)

    def apply_retention(self, now_ms: int, *, up_to_offset: Offset | None = None) -> list[Offset]:
        """Delete segments by age and size, below ``up_to_offset`` (a high watermark); the base offsets of those."""
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            limit = self._state.log_end_offset if up_to_offset is None else up_to_offset
            return trimming.apply_retention(self._state, now_ms, limit)

    def plan_cleaning(self, now_ms: int, *, up_to_offset: Offset | None = None) -> CleaningPlan | None:
        """What to compact now, below ``up_to_offset`` (a high watermark), for ``cleaner.clean`` in a worker thread."""
        self._state.require_usable()
        limit = self._state.log_end_offset if up_to_offset is None else up_to_offset
        return cleaner.plan_cleaning(self._state, now_ms, limit)

    def install(self, cleaned: CleanedLog) -> bool:
        """Put what ``cleaner.clean`` has made in place; False if the log changed so that not all of it fits."""
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            return cleaner.install(self._state, cleaned)

    # What has rotted: found by checks in worker threads, and put right from another replica.

    @property
    def segments(self) -> list[Segment]:
        """Those that hold something, or should, in order."""
        return [each for each in self._state.segments if each.size_bytes or each.damage or not each.is_checked]

    @property
    def damage(self) -> list[DamagedRange]:
        """What is known to have rotted, in order."""
        return [damaged for segment in self._state.segments for damaged in segment.damage]

    def begin_check(self, segment: Segment) -> SegmentCheck:
        """To be carried out in a worker thread, and then noted."""
        return segment_checks.begin_check(self._state, segment)

    def note_check(self, check: SegmentCheck) -> bool:
        """Take over what was found; False if the log has changed so that it says nothing any more."""
        assert check.report is not None
        return segment_checks.note_report(self._state, check.subject, check.report)

    def begin_summing(self, segment: Segment) -> SummedLog | None:
        """For ``write_checksums`` in a worker thread; None where a checked segment has its checksums."""
        return segment_checks.begin_summing(self._state, segment)

    def note_summed(self, segment: Segment) -> None:
        segment_checks.note_summed(self._state, segment)

    def plan_repair(self, segment: Segment, report: SegmentReport) -> RepairPlan:
        """What ``segment_repair.repair`` needs to make the segment's files anew in a worker thread."""
        return segment_repair.plan_repair(self._state, segment, report)

    def install_repair(self, repaired: RepairedSegment) -> bool:
        """Put what was made in place; False if the log changed so that it does not fit any more."""
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            return segment_repair.install(self._state, repaired)

    def repair_small_files(self, names: Sequence[str], topic_id: TopicId | None = None) -> None:
        """Make those of the small files beside the log anew that ``small_files.find_damaged`` has named."""
        self._state.require_usable()
        with self._state.disk_failures_are_final():
            small_files.repair(self._state, names, topic_id)

    def expire_producers(self, now_ms: int) -> None:
        self._state.producers.expire(now_ms, self._state.config.producer_id_expiration_ms)

    def close(self) -> None:
        """Leave everything durable and complete, so that the next open has nothing to check."""
        state = self._state
        state.require_usable()
        with state.disk_failures_are_final():
            active = state.segments.active
            if active.is_created:
                seal(active, state.log_end_offset, state.config.index_interval_bytes)
                for file in active.files():
                    file.sync()
                state.durability.note_file_created()
            state.durability.sync(state.tail)
            if active.is_created:
                # The checksums of the other segments are written by the scrub, at its own pace.
                segment_checks.sum_up(state, active, state.log_end_offset)
            if state.durability.recovery_point < state.log_end_offset:
                self._checkpoint(state.log_end_offset)
            self.release()

    def _checkpoint(self, end: Offset) -> None:
        state = self._state
        state.disk.replace(path_of(state.directory, end, PRODUCER_SNAPSHOT), encode_snapshot(state.producers))
        write_epochs(state.disk, f"{state.directory}/{LEADER_EPOCH_CHECKPOINT}", state.epochs.entries())
        state.durability.checkpoint(end)

    def release(self) -> None:
        """Hold no file open any more: the log is about to be removed, or nobody uses it now."""
        for segment in self._state.segments:
            segment.release()

    def delete(self) -> None:
        """Take the folder out of the way in one step and remove it; what is half removed is never taken for a log."""
        self.release()
        remove_logs(self._state.disk, [self._state.directory])
