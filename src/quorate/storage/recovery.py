"""Opening a log after any end it may have had: clean, a killed process, a power cut.

Everything below the recovery point was synced with its indexes. It is not read here, and the log opens even if it was
damaged since: a segment is checked before it is first read, unless the disk is trusted. From the recovery point on
every batch is read and checked, and the log ends before the first that is torn, has a wrong CRC or does not follow the
one before it. Segments above the recovery point must join without a hole: one of their files may have been lost, or an
interrupted truncation may have removed some of them. After recovery everything that the log holds is durable.
"""

from itertools import zip_longest
from typing import TypeVar

import msgspec

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk
from quorate.records.batch import BatchHeader
from quorate.storage.checkpoints import EpochStart, read_epochs, read_offset, write_epochs, write_offset
from quorate.storage.config import LogConfig
from quorate.storage.durability import LogDurability
from quorate.storage.epoch_cache import LeaderEpochCache
from quorate.storage.file_names import (
    CHECKSUMS,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    LOG_START_CHECKPOINT,
    OFFSET_INDEX,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    TIME_INDEX,
    TRANSACTION_INDEX,
    offsets_of,
    parent_of,
    path_of,
)
from quorate.storage.producer_snapshots import (
    rebuild_from_what_is_sound,
    rebuild_producers,
    remove_snapshots,
    remove_stale_snapshots,
)
from quorate.storage.producer_state import ProducerStates
from quorate.storage.segment import Segment, Segments
from quorate.storage.segment_recovery import find_unreadable, indexes_are_usable, rebuild_indexes, recover_segment
from quorate.storage.state import LogState
from quorate.storage.swap import finish_swaps
from quorate.storage.transactions import TransactionIndex

LogT = TypeVar("LogT", bound=LogState)


class RecoverySummary(msgspec.Struct, frozen=True, kw_only=True):
    """The findings of a recovery, for the operator's log."""

    scanned_from: Offset
    log_end_offset: Offset
    truncated_bytes: int
    dropped_segments: tuple[Offset, ...]
    reason: str | None  # Why the log ends where it ends, if something was cut off.
    #: Files beside the log that were damaged, and have been written again.
    repaired: tuple[str, ...] = ()


def recover(
    log_type: type[LogT], disk: Disk, directory: str, config: LogConfig, *, trusts_disk: bool, trusts_epochs: bool
) -> tuple[LogT, RecoverySummary]:
    disk.make_directory(directory)
    finish_swaps(disk, directory)
    recovery = _Recovery(disk, directory, config, trusts_disk=trusts_disk, trusts_epochs=trusts_epochs)
    recovery.load_segments()
    return recovery.finish(log_type), recovery.summary()


class _Recovery:
    """The steps of one recovery and what they found so far."""

    def __init__(
        self, disk: Disk, directory: str, config: LogConfig, *, trusts_disk: bool, trusts_epochs: bool
    ) -> None:
        self._trusts_disk = trusts_disk
        self._trusts_epochs = trusts_epochs
        self._repaired: list[str] = []
        self._disk = disk
        self._directory = directory
        self._config = config
        self._names = names = disk.list_directory(directory)
        self._bases = offsets_of(names, LOG)
        self._transaction_indexes = frozenset(offsets_of(names, TRANSACTION_INDEX))
        log_start = self._stored_offset(LOG_START_CHECKPOINT)
        # Quorate stores a log's start before it makes a second segment. A folder with several segments and no stored
        # start was written by Apache Kafka: there the first segment is the start, and compaction leaves holes.
        self._log_start_is_stored = log_start is not None or LOG_START_CHECKPOINT in self._repaired
        self._log_start = next(iter(self._bases), Offset(0)) if log_start is None else log_start
        recovery_point = self._stored_offset(RECOVERY_POINT_CHECKPOINT)
        # Without a segment, the folder itself may not be durable.
        self._is_new = recovery_point is None
        self._recovery_point = recovery_point or Offset(0)
        self._log_end = self._log_start
        # Up to here the transaction indexes are complete; the rest is found again by replaying the log.
        self._transactions_known_to = self._scanned_from
        self._damaged_indexes: list[TransactionIndex] = []
        self._trusted: list[Segment] = []
        self._scanned: list[Segment] = []
        self._scanned_epochs: list[EpochStart] = []
        self._epochs_in_file: list[EpochStart] = []
        self._truncated_bytes = 0
        self._dropped: list[Offset] = []
        self._reason: str | None = None

    def _stored_offset(self, name: str) -> Offset | None:
        """None where there is no such file, or it is damaged: then the log itself has to tell."""
        try:
            return read_offset(self._disk, f"{self._directory}/{name}")
        except KafkaError:
            self._repaired.append(name)
            return None

    def load_segments(self) -> None:
        self._stand_in_for_a_missing_start()
        for base, end in zip_longest(self._bases, self._bases[1:]):
            segment = Segment(self._disk, self._directory, base, is_new=False)
            if end is not None and end <= self._log_start:
                segment.remove()  # Deleted before, but the removal was not durable.
            elif end is not None and end <= self._recovery_point:
                self._trust(segment, end)
            elif self._reason is None and self._joins(segment):
                self._scan(segment)
            else:
                self._reason = self._reason or f"segment {base} does not join the log, which ends at {self._log_end}"
                self._drop([segment])
        if self._log_end < self._log_start or (self._log_end == self._log_start and self._ends_before_its_start()):
            self._start_over()
        self._remove_strays()

    def _stand_in_for_a_missing_start(self) -> None:
        """Put an empty segment in the place of a lost first one: its records are damaged, and were not deleted.

        They cannot have been deleted, since a new start of the log is durable before a segment below it is removed.
        """
        first = next(iter(self._bases), None)
        if first is not None and self._log_start_is_stored and self._log_start < first <= self._recovery_point:
            Segment(self._disk, self._directory, self._log_start, is_new=True).create()
            self._bases = [self._log_start, *self._bases]

    def finish(self, log_type: type[LogT]) -> LogT:
        segments = Segments(self._trusted + self._scanned or [self._new_segment()])
        producers, producers_are_complete = self._producers(segments)
        for segment in segments:
            if segment.transaction_index in self._damaged_indexes:
                segment.transaction_index.replace()
        log_start = max(self._log_start, segments.first.base_offset)
        epochs = self._epochs(log_start)
        durability = self._durability(epochs)
        state = log_type(
            disk=self._disk,
            directory=self._directory,
            config=self._config,
            segments=segments,
            epoch_cache=epochs,
            producers=producers,
            durability=durability,
            log_start_offset=log_start,
            log_start_is_stored=self._log_start_is_stored,
            log_end_offset=self._log_end,
        )
        state.producers_are_complete = producers_are_complete
        for segment in segments:
            if self._trusts_disk:
                segment.is_checked = segment.indexes_are_checked = True
            segment.release()  # A node opens thousands of logs and uses few of them at once.
        return state

    def _durability(self, epochs: LeaderEpochCache) -> LogDurability:
        durability = LogDurability(
            self._disk,
            self._directory,
            recovery_point=self._settle(epochs),
            synced_end_offset=self._log_end,
            is_new=self._is_new,
        )
        if self._is_new and PARTITION_METADATA in self._names:
            # A process that was killed may have written it and not made it durable.
            durability.note_written(f"{self._directory}/{PARTITION_METADATA}")
        if epochs.entries() != self._epochs_in_file:
            # Epochs that the scan has found must be in the file before the recovery point passes them.
            durability.note_epochs(epochs.entries())
        return durability

    def _producers(self, segments: Segments) -> tuple[ProducerStates, bool]:
        """The producers of the log, and whether they are complete: no damaged batch was needed."""
        snapshot_up_to = min(self._transactions_known_to, self._log_end)
        if self._trusts_disk:
            return rebuild_producers(self._disk, self._directory, segments, snapshot_up_to=snapshot_up_to), True
        return rebuild_from_what_is_sound(
            self._disk, self._directory, segments, self._log_end, snapshot_up_to=snapshot_up_to
        )

    def summary(self) -> RecoverySummary:
        return RecoverySummary(
            scanned_from=self._scanned_from,
            log_end_offset=self._log_end,
            truncated_bytes=self._truncated_bytes,
            dropped_segments=tuple(self._dropped),
            reason=self._reason,
            repaired=tuple(self._repaired),
        )

    @property
    def _scanned_from(self) -> Offset:
        return max(self._recovery_point, self._log_start)

    def _trust(self, segment: Segment, end: Offset) -> None:
        segment.size_bytes = segment.file.size()
        if not indexes_are_usable(segment, end):
            rebuild_indexes(segment, end, self._config.index_interval_bytes)
        self._check_transactions(segment)
        segment.is_sealed = True
        segment.is_checked = segment.indexes_are_checked = False
        segment.summed_up_bytes = segment.size_bytes
        self._trusted.append(segment)
        self._log_end = end

    def _joins(self, segment: Segment) -> bool:
        if not self._log_start_is_stored:
            return segment.base_offset >= self._log_end
        if self._scanned:
            return segment.base_offset == self._log_end
        return segment.base_offset <= self._scanned_from

    def _check_transactions(self, segment: Segment, *, is_active: bool = False) -> None:
        """Keep the entries of the segment's transaction index below the recovery point, if they are as stored."""
        if segment.base_offset not in self._transaction_indexes:
            return
        index = segment.transaction_index
        if segment.base_offset >= self._recovery_point:
            index.forget()
            index.remove()
        elif self._may_trust_transactions(segment, is_active=is_active) and index.is_usable():
            index.truncate_to(self._recovery_point)
        else:
            # The file stays until its content is known again: without it, nothing would show that it is missing.
            index.forget()
            self._damaged_indexes.append(index)
            self._transactions_known_to = min(self._transactions_known_to, segment.base_offset)

    def _may_trust_transactions(self, segment: Segment, *, is_active: bool) -> bool:
        """Not without checksums: a flipped bit is an entry like any other, and a reader would get what was aborted.

        A segment has none yet where the process was killed soon after it was sealed. Those of a sealed one are compared
        before it is first read; those of an active one here, as they describe what is stored until it is sealed. Apache
        Kafka writes none.
        """
        if self._trusts_disk:
            return True
        known = segment.stored_checksums()
        if known is None:
            return len(self._bases) > 1 and not self._log_start_is_stored
        return not is_active or segment.transactions_match(known)

    def _scan(self, segment: Segment) -> None:
        self._check_transactions(segment, is_active=True)
        result = recover_segment(
            segment,
            self._recovery_point,
            self._config.index_interval_bytes,
            self._note_epoch,
            stored_epochs=None if self._trusts_epochs else self._readable_epochs(),
        )
        self._reason = result.reason
        self._truncated_bytes += result.truncated_bytes
        self._log_end = result.end_offset
        self._scanned.append(segment)

    def _ends_before_its_start(self) -> bool:
        """Whether everything that is left lies below the start of the log."""
        kept = self._trusted + self._scanned
        if not kept or kept[-1].base_offset >= self._log_start:
            return False
        headers = list(kept[-1].headers_from(0))
        return not headers or headers[-1][1].next_offset < self._log_start

    def _readable_epochs(self) -> list[EpochStart] | None:
        try:
            return read_epochs(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}")
        except KafkaError:
            return None  # Damaged: the epochs come from the batches.

    def _note_epoch(self, header: BatchHeader) -> None:
        epoch = header.partition_leader_epoch
        if not self._scanned_epochs or self._scanned_epochs[-1][0] != epoch:
            self._scanned_epochs.append((epoch, header.base_offset))

    def _start_over(self) -> None:
        """The log's start is durable but the records up to it are not: the log becomes empty and starts there."""
        self._drop(self._trusted + self._scanned)
        # A transaction that is open in a snapshot may have ended in what is lost, and would never end.
        remove_snapshots(self._disk, self._directory, above=Offset(-1))
        self._trusted, self._scanned, self._scanned_epochs = [], [], []
        self._log_end = self._log_start

    def _drop(self, segments: list[Segment]) -> None:
        for segment in segments:
            self._truncated_bytes += segment.size_bytes or segment.file.size()
            self._dropped.append(segment.base_offset)
            segment.remove()

    def _remove_strays(self) -> None:
        """Remove indexes without a log: they would be taken for those of the next segment with that base offset."""
        kept = {segment.base_offset for segment in self._trusted + self._scanned}
        for suffix in (OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, CHECKSUMS):
            for offset in offsets_of(self._disk.list_directory(self._directory), suffix):
                if offset not in kept:
                    self._disk.remove(path_of(self._directory, offset, suffix))
        remove_stale_snapshots(self._disk, self._directory, kept, self._log_end)

    def _new_segment(self) -> Segment:
        return Segment(self._disk, self._directory, self._log_end, is_new=True)

    def _epochs(self, log_start: Offset) -> LeaderEpochCache:
        """The stored epochs for what was not checked, those of the batches for the rest; none without a batch."""
        epochs = LeaderEpochCache(self._stored_epochs())
        first_scanned = self._scanned_epochs[0][1] if self._scanned_epochs else self._scanned_from
        epochs.truncate_from_end(min(first_scanned, self._scanned_from))
        for epoch, start in self._scanned_epochs:
            epochs.assign(epoch, start)
        epochs.truncate_from_end(self._log_end)
        epochs.truncate_from_start(log_start)
        return epochs

    def _stored_epochs(self) -> list[EpochStart]:
        try:
            stored = read_epochs(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}")
        except KafkaError:
            stored = None
            self._repaired.append(LEADER_EPOCH_CHECKPOINT)
        if stored is not None:
            self._epochs_in_file = stored
            return stored
        segments = self._trusted + self._scanned
        for segment, end in zip_longest(segments, [segment.base_offset for segment in segments[1:]]):
            find_unreadable(segment, end or self._log_end)
        headers = (header for segment in segments for _, header in segment.headers_from(0))
        return [(header.partition_leader_epoch, header.base_offset) for header in headers]

    def _was_closed(self) -> bool:
        """Whether nothing was found to check and nothing was changed."""
        return self._log_end == self._scanned_from and not self._dropped and not self._truncated_bytes

    def _settle(self, epochs: LeaderEpochCache) -> Offset:
        """Make durable what this recovery changed, and move the recovery point over segments that are complete."""
        for segment in self._scanned[:-1]:
            segment.seal()
            for file in segment.files():
                file.sync()
        if LOG_START_CHECKPOINT in self._repaired:
            write_offset(self._disk, f"{self._directory}/{LOG_START_CHECKPOINT}", self._log_start)
        if self._was_closed() and RECOVERY_POINT_CHECKPOINT not in self._repaired:
            return self._recovery_point
        self._disk.sync_directory(self._directory)
        self._disk.sync_directory(parent_of(self._directory))
        recovery_point = min(self._recovery_point, self._log_end)
        if len(self._scanned) > 1:
            recovery_point = max(recovery_point, self._scanned[-1].base_offset)
        if recovery_point != self._recovery_point or RECOVERY_POINT_CHECKPOINT in self._repaired:
            write_epochs(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}", epochs.entries())
            write_offset(self._disk, f"{self._directory}/{RECOVERY_POINT_CHECKPOINT}", recovery_point)
        return recovery_point
