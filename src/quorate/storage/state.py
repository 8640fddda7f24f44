"""The state of one partition log, shared by the modules that append, read, trim, compact, repair and recover."""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk, is_full
from quorate.storage.checkpoints import read_offset, write_offset
from quorate.storage.config import LogConfig
from quorate.storage.durability import LogDurability, LogTail
from quorate.storage.epoch_cache import LeaderEpochCache
from quorate.storage.file_names import CLEANER_CHECKPOINT, LOG_START_CHECKPOINT
from quorate.storage.producer_state import ProducerStates
from quorate.storage.segment import Segment, Segments

LogT = TypeVar("LogT", bound="LogState")
P = ParamSpec("P")
T = TypeVar("T")

_MAX_RECENTLY_READ = 8
_RECENT_BATCHES = 256  # Trimmed to this when twice as many have collected.


class LogState:
    """Belongs to the loop's thread; ``durability`` says what a syncing thread may touch."""

    __slots__ = (
        "_cleaned_up_to",
        "_recently_read",
        "config",
        "directory",
        "disk",
        "durability",
        "epoch_cache",
        "failure",
        "log_end_offset",
        "log_start_is_stored",
        "log_start_offset",
        "producers",
        "producers_are_complete",
        "recent",
        "segments",
        "truncations",
    )

    def __init__(
        self,
        *,
        disk: Disk,
        directory: str,
        config: LogConfig,
        segments: Segments,
        epoch_cache: LeaderEpochCache,
        producers: ProducerStates,
        durability: LogDurability,
        log_start_offset: Offset,
        log_start_is_stored: bool,
        log_end_offset: Offset,
    ) -> None:
        self.disk = disk
        self.directory = directory
        self.config = config
        self.segments = segments
        self.epoch_cache = epoch_cache
        self.producers = producers
        # False while a part of the log is damaged that the producers' state should have come from.
        self.producers_are_complete = True
        self.durability = durability
        self.log_start_offset = log_start_offset
        self.log_start_is_stored = log_start_is_stored
        self.log_end_offset = log_end_offset
        self.recent = RecentBatches(log_end_offset)
        self._cleaned_up_to: Offset | None = None
        self._recently_read: list[Segment] = []
        self.truncations = 0  # Number of truncations so far.
        # Set for good when the disk has failed and it is unknown what it holds.
        self.failure: OSError | None = None

    def keep_open(self, segment: Segment) -> None:
        """A segment that is not active is being read: keep its files open, and release the one read longest ago."""
        if segment in self._recently_read:
            return
        self._recently_read.append(segment)
        if len(self._recently_read) > _MAX_RECENTLY_READ:
            oldest = self._recently_read.pop(0)
            if oldest is not self.segments.active:
                oldest.release()

    def tail(self) -> LogTail:
        """The end of the log for a sync. The offset is read first: what is below it is in this file or a sealed one."""
        end_offset = self.log_end_offset
        active = self.segments.active
        return LogTail(end_offset, active.file if active.is_created else None)

    def store_log_start(self, offset: Offset) -> None:
        """Make the start of the log durable."""
        self.durability.make_folder_durable()
        write_offset(self.disk, f"{self.directory}/{LOG_START_CHECKPOINT}", offset)
        self.log_start_is_stored = True

    @property
    def cleaned_up_to(self) -> Offset:
        """The log was compacted below. Read from its file when first needed: most logs are never compacted."""
        if self._cleaned_up_to is None:
            try:
                stored = read_offset(self.disk, f"{self.directory}/{CLEANER_CHECKPOINT}")
            except KafkaError:
                stored = None  # Damaged: costs another round of compaction.
            self._cleaned_up_to = min(stored or Offset(0), self.log_end_offset)
        return self._cleaned_up_to

    @property
    def may_have_holes(self) -> bool:
        """Whether compaction may have taken records away, here or on the leader from which they came."""
        return self.config.compacts or self.cleaned_up_to > 0

    def store_cleaned_up_to(self, offset: Offset) -> None:
        """Remember it. If it cannot be stored on a full disk, a restart costs a round of compaction, no record."""
        self._cleaned_up_to = offset
        try:
            write_offset(self.disk, f"{self.directory}/{CLEANER_CHECKPOINT}", offset)
        except OSError as error:
            if not is_full(error):
                raise

    def require_usable(self) -> None:
        if self.failure is not None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"{self.directory} is offline since its disk failed: {self.failure}"
            )

    def fail(self, error: OSError) -> KafkaError:
        """Serve nothing any more: after a failed sync it is unknown what the disk holds."""
        self.failure = error
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk of {self.directory} failed: {error}")


def changes_log(change: Callable[Concatenate[LogT, P], T]) -> Callable[Concatenate[LogT, P], T]:
    """For a change of several steps: if the disk fails between two of them, memory and disk no longer agree.

    So the failure is final: the log raises KAFKA_STORAGE_ERROR for this change and all later ones.
    """

    @wraps(change)
    def guarded(state: LogT, /, *args: P.args, **kwargs: P.kwargs) -> T:
        state.require_usable()
        try:
            return change(state, *args, **kwargs)
        except OSError as error:
            raise state.fail(error) from error

    return guarded


class RecentBatches:
    """The last batches of the active segment, in memory, so that a reader at the tail needs no index and no scan.

    They follow each other without a hole and end where the file ends.
    """

    __slots__ = ("_known_from", "_last_offsets", "_positions")

    def __init__(self, known_from: Offset) -> None:
        # Every batch that holds an offset at or above this one is here.
        self._known_from = known_from
        self._last_offsets = array("q")
        self._positions = array("q")

    def add(self, last_offset: Offset, position: int) -> None:
        self._last_offsets.append(last_offset)
        self._positions.append(position)
        if len(self._positions) >= 2 * _RECENT_BATCHES:
            self._known_from = Offset(self._last_offsets[_RECENT_BATCHES - 1] + 1)
            del self._last_offsets[:_RECENT_BATCHES], self._positions[:_RECENT_BATCHES]

    def forget(self, known_from: Offset) -> None:
        self._known_from = known_from
        self._last_offsets = array("q")
        self._positions = array("q")

    def knows(self, offset: Offset) -> bool:
        return offset >= self._known_from

    def start_of(self, offset: Offset, size_bytes: int) -> int:
        """The start of the first batch that ends at or after ``offset``; the end of the file if there is none."""
        index = bisect_left(self._last_offsets, offset)
        return self._positions[index] if index < len(self._positions) else size_bytes

    def start_after(self, position: int, size_bytes: int) -> int:
        """The end of the batch that starts at ``position``."""
        index = bisect_right(self._positions, position)
        return self._positions[index] if index < len(self._positions) else size_bytes

    def boundary_at_or_before(self, position: int, size_bytes: int) -> int:
        """The last boundary between batches that is not beyond ``position``."""
        if position >= size_bytes:
            return size_bytes
        return self._positions[bisect_right(self._positions, position) - 1]
