"""The part of a log that is known to be durable, and the files that record it.

The loop's thread appends, rolls and truncates; worker threads, one at a time, run ``sync``. Shared between them:
``synced_end_offset``, ``recovery_point`` and ``_lowered_to`` (changed under the lock), ``_sealed`` and
``_written_paths`` (the loop adds, ``sync`` removes) and ``_epochs``, ``_directory_is_dirty`` (set by the loop, taken by
``sync``).
``sync`` looks at the end of the log before it starts and publishes it when it is done.

Two rules carry recovery: a file below the recovery point is synced with its indexes before the recovery point says so,
and the recovery point is lowered, durably, before anything below it is taken away.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk, DiskFile
from quorate.storage.checkpoints import EpochStart, write_epochs, write_offset
from quorate.storage.file_names import (
    LEADER_EPOCH_CHECKPOINT,
    PRODUCER_SNAPSHOT,
    RECOVERY_POINT_CHECKPOINT,
    parent_of,
    path_of,
)


class LogTail(NamedTuple):
    end_offset: Offset
    active: DiskFile | None  # The file that grows; None before the first append to it.


class SealedSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that was rolled and is not yet durable with all that belongs to it."""

    end_offset: Offset
    files: list[DiskFile]
    producer_snapshot: bytes


class LogDurability:
    __slots__ = (
        "_directory",
        "_directory_is_dirty",
        "_disk",
        "_epochs",
        "_lock",
        "_lowered_to",
        "_one_at_a_time",
        "_parent_is_dirty",
        "_sealed",
        "_written_paths",
        "recovery_point",
        "synced_end_offset",
    )

    def __init__(
        self, disk: Disk, directory: str, *, recovery_point: Offset, synced_end_offset: Offset, is_new: bool
    ) -> None:
        self.recovery_point = recovery_point  # Recovery does not check what is below.
        self.synced_end_offset = synced_end_offset  # Everything below is durable.
        self._disk = disk
        self._directory = directory
        self._lock = threading.Lock()
        self._one_at_a_time = threading.Lock()
        self._lowered_to: Offset | None = None  # The lowest truncation since the sync began that is running.
        self._sealed: list[SealedSegment] = []
        self._epochs: Sequence[EpochStart] | None = None
        self._written_paths: list[str] = []  # Small files that the next sync makes durable.
        self._directory_is_dirty = is_new
        self._parent_is_dirty = is_new

    def make_folder_durable(self) -> None:
        """Sync the name of the folder itself: without it nothing inside survives a power cut."""
        if self._parent_is_dirty:
            self._disk.sync_directory(parent_of(self._directory))
            self._parent_is_dirty = False

    def note_file_created(self) -> None:
        self._directory_is_dirty = True

    def note_written(self, path: str) -> None:
        """A small file beside the log was written: the next sync covers it too."""
        self._written_paths.append(path)
        self._directory_is_dirty = True

    def note_sealed(self, sealed: SealedSegment) -> None:
        self._sealed.append(sealed)

    def note_epochs(self, epochs: Sequence[EpochStart]) -> None:
        self._epochs = epochs

    def sync(self, tail: Callable[[], LogTail]) -> None:
        """Make everything below the end of the log durable; ``OSError`` if the disk fails: then nothing is claimed."""
        with self._one_at_a_time:
            # Truncations from here on limit what this sync may claim. This must come before the end offset is read.
            self._lowered_to = None
            end_offset, active = tail()
            sealed = list(self._sealed)
            self._sync_files(sealed, active if end_offset > self.synced_end_offset else None)
            self._store_epochs()
            with self._lock:
                lowered_to = self._lowered_to
                if lowered_to is None:
                    self._settle(sealed)
                    self.synced_end_offset = max(self.synced_end_offset, end_offset)
                else:
                    self.synced_end_offset = max(self.synced_end_offset, min(end_offset, lowered_to))

    def lower(self, offset: Offset) -> None:
        """Claim nothing at or above ``offset`` any more. Must be called before anything there is removed."""
        with self._lock:
            self._lowered_to = offset if self._lowered_to is None else min(offset, self._lowered_to)
            self._sealed = [sealed for sealed in self._sealed if sealed.end_offset <= offset]
            self.synced_end_offset = min(self.synced_end_offset, offset)
            if self.recovery_point > offset:
                self._write_recovery_point(offset)

    def store_snapshots(self) -> None:
        """Write the producer snapshots that wait for a sync, so that they can be read."""
        with self._lock:
            self._write_snapshots(self._sealed)

    def start_at(self, offset: Offset) -> None:
        """The log was emptied and starts at ``offset``: there is nothing below that could be lost."""
        with self._lock:
            self._sealed = []
            self.synced_end_offset = offset

    def checkpoint(self, recovery_point: Offset) -> None:
        """Let the next recovery start here. Only for a log whose every file is synced."""
        with self._lock:
            if recovery_point != self.recovery_point:
                self._write_recovery_point(recovery_point)

    def store_recovery_point(self) -> None:
        """Write it again: the file was damaged."""
        with self._lock:
            self._write_recovery_point(self.recovery_point)

    def _sync_files(self, sealed: list[SealedSegment], active: DiskFile | None) -> None:
        for segment in sealed:
            for file in segment.files:
                file.sync()
        if active is not None:
            active.sync()
        while self._written_paths:
            file = self._disk.open(self._written_paths[-1])
            file.sync()
            file.close()
            self._written_paths.pop()
        if self._directory_is_dirty:
            self._directory_is_dirty = False
            try:
                self._disk.sync_directory(self._directory)
            except OSError:
                self._directory_is_dirty = True
                raise
        self.make_folder_durable()

    def _store_epochs(self) -> None:
        epochs, self._epochs = self._epochs, None
        if epochs is not None:
            try:
                write_epochs(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}", epochs)
            except OSError:
                if self._epochs is None:
                    self._epochs = epochs
                raise

    def _settle(self, sealed: list[SealedSegment]) -> None:
        if not sealed:
            return
        self._write_snapshots(sealed)
        del self._sealed[: len(sealed)]
        self._write_recovery_point(sealed[-1].end_offset)

    def _write_snapshots(self, sealed: list[SealedSegment]) -> None:
        for segment in sealed:
            path = path_of(self._directory, segment.end_offset, PRODUCER_SNAPSHOT)
            self._disk.replace(path, segment.producer_snapshot)

    def _write_recovery_point(self, offset: Offset) -> None:
        write_offset(self._disk, f"{self._directory}/{RECOVERY_POINT_CHECKPOINT}", offset)
        self.recovery_point = offset
