"""One segment of a log, a file of batches with its indexes; and the segments of a log in their order.

A segment is changed only at its end, and only while it is the active one. Its file is opened when it is first needed
and released when the segment is removed; a reader that still holds the file keeps it open.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain

import msgspec

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.kernel.ports import Disk, DiskFile
from quorate.records.batch import BatchHeader
from quorate.records.record import NO_TIMESTAMP
from quorate.storage.batch_scan import scan_headers
from quorate.storage.damage import DamagedRange, sound_parts
from quorate.storage.file_names import CHECKSUMS, LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, path_of
from quorate.storage.indexes import OffsetIndex, TimeIndex
from quorate.storage.segment_checksums import SegmentChecksums, indexes_match, read_checksums, transactions_match
from quorate.storage.transactions import TransactionIndex

_MAX_RELATIVE_OFFSET = 2**31 - 1
_MAX_NEXT_READS = 64
#: A value of ``summed_up_bytes``: the checksums are right for the log, and no longer for its indexes.
INDEXES_CHANGED = -1


class LoggedBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch as the segment needs to know it, with the offsets that it has in the log."""

    base_offset: Offset
    last_offset: Offset
    max_timestamp: int
    size_bytes: int
    leader_epoch: LeaderEpoch

    @classmethod
    def of(cls, header: BatchHeader) -> "LoggedBatch":
        return cls(
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            header.size_bytes,
            header.partition_leader_epoch,
        )


class MaxTimestamp(msgspec.Struct, frozen=True, gc=False):
    timestamp_ms: int
    last_offset: Offset  # Of the first batch that carries it.


class Segment:
    __slots__ = (
        "_bytes_since_entry",
        "_directory",
        "_disk",
        "_file",
        "_first_timestamp",
        "_max_timestamp",
        "_next_reads",
        "base_offset",
        "checksums_path",
        "damage",
        "indexes_are_checked",
        "is_checked",
        "is_sealed",
        "offset_index",
        "path",
        "size_bytes",
        "summed_up_bytes",
        "time_index",
        "transaction_index",
    )

    def __init__(self, disk: Disk, directory: str, base_offset: Offset, *, is_new: bool, suffix: str = "") -> None:
        self.base_offset = base_offset
        self.path = path_of(directory, base_offset, LOG + suffix)
        self.size_bytes = 0
        # Whether the last entry of the time index is the highest timestamp of the segment.
        self.is_sealed = False
        self.checksums_path = path_of(directory, base_offset, CHECKSUMS + suffix)
        # How many bytes of the log the stored checksums cover; after a restart, as far as is known.
        self.summed_up_bytes = 0
        # Whether the log, or its indexes, were written or checked since the process started.
        self.is_checked = True
        self.indexes_are_checked = True
        # The damaged ranges, in order.
        self.damage: tuple[DamagedRange, ...] = ()
        self.offset_index = OffsetIndex(
            disk, path_of(directory, base_offset, OFFSET_INDEX + suffix), base_offset, is_new=is_new
        )
        self.time_index = TimeIndex(
            disk, path_of(directory, base_offset, TIME_INDEX + suffix), base_offset, is_new=is_new
        )
        self.transaction_index = TransactionIndex(
            disk, path_of(directory, base_offset, TRANSACTION_INDEX + suffix), base_offset, is_new=is_new
        )
        self._disk = disk
        self._directory = directory
        self._file: DiskFile | None = None
        # The maximum timestamp of the first batch, from which the age of the segment counts; None until asked for.
        self._first_timestamp: int | None = None
        # None until asked for: a segment that was closed has it as the last entry of its time index.
        self._max_timestamp: MaxTimestamp | None = MaxTimestamp(NO_TIMESTAMP, base_offset) if is_new else None
        self._bytes_since_entry = 0
        # Base offset to position of batches before which a reader stopped, and will most likely continue.
        self._next_reads: dict[Offset, int] = {}

    @property
    def file(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    def create(self) -> None:
        """Make the file. Its name is not durable before the folder is synced."""
        self._file = self._disk.open(self.path, create=True)

    @property
    def is_created(self) -> bool:
        return self._file is not None or self.size_bytes > 0

    def holds(self, offset: Offset) -> bool:
        """Whether the offset, relative to the base, fits into an index entry."""
        return offset - self.base_offset <= _MAX_RELATIVE_OFFSET

    def note(self, batch: LoggedBatch, position: int, index_interval_bytes: int) -> None:
        """Take account of a batch that was written at ``position``, the end of the batches noted before."""
        known = self._max_timestamp or self.max_timestamp()
        if batch.max_timestamp > known.timestamp_ms:
            self._max_timestamp = known = MaxTimestamp(batch.max_timestamp, batch.last_offset)
        self.is_sealed = False
        if position == 0:
            self._first_timestamp = batch.max_timestamp
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.add(batch.last_offset, position)
            self.time_index.add(known.timestamp_ms, known.last_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += batch.size_bytes
        self.size_bytes = position + batch.size_bytes

    def cut(self, size_bytes: int) -> None:
        """Shorten the file, durably, so that what was cut off can never come back after a crash."""
        if self.summed_up_bytes == INDEXES_CHANGED or size_bytes < self.summed_up_bytes:
            self.drop_checksums()
        self.damage = tuple(damaged for damaged in self.damage if damaged.end <= size_bytes)
        self.file.truncate(size_bytes)
        self.file.sync()
        self.size_bytes = size_bytes
        self._next_reads.clear()

    def reset(self) -> None:
        """Forget all that is known of the content, to note it again from the start."""
        self.offset_index.reset()
        self.time_index.reset()
        self._next_reads.clear()
        self.size_bytes = 0
        self.is_sealed = False
        self._first_timestamp = None
        self._max_timestamp = MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        self._bytes_since_entry = 0

    def forget_from(self, offset: Offset) -> None:
        """Drop index entries at or above ``offset``; the highest timestamp is looked up again when it is needed."""
        self._next_reads.clear()
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.is_sealed = False
        self._max_timestamp = None
        self._bytes_since_entry = 0
        if self.size_bytes == 0:
            self._first_timestamp = None

    def reopen(self) -> None:
        """Append to a sealed segment whose indexes are right: the last entry of the time index is the highest."""
        last = self.time_index.last()
        self._max_timestamp = MaxTimestamp(*last) if last else MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        self._next_reads.clear()
        self.is_sealed = False
        self._bytes_since_entry = 0

    def seal(self) -> None:
        """Store the indexes, complete with the highest timestamp, as for every segment but the active one."""
        known = self.max_timestamp()
        self.time_index.add(known.timestamp_ms, known.last_offset)
        self.offset_index.store()
        self.time_index.store()
        self.transaction_index.store()
        self.is_sealed = True

    def max_timestamp(self) -> MaxTimestamp:
        """The highest timestamp in the segment; ``NO_TIMESTAMP`` where no batch has one."""
        if self._max_timestamp is None:
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    def _find_max_timestamp(self) -> MaxTimestamp:
        """In a sealed segment the last entry of the time index; otherwise a batch after that may be higher."""
        last = self.time_index.last()
        if last and self.is_sealed:
            return MaxTimestamp(*last)
        best = MaxTimestamp(*last) if last else MaxTimestamp(NO_TIMESTAMP, self.base_offset)
        for _, header in self.headers_from(self.offset_index.last_position()):
            if header.max_timestamp > best.timestamp_ms:
                best = MaxTimestamp(header.max_timestamp, header.last_offset)
        return best

    def first_timestamp(self) -> int:
        if self._first_timestamp is None:
            first = next(iter(self.headers_from(0)), None)
            if first is None:
                return NO_TIMESTAMP
            self._first_timestamp = first[1].max_timestamp
        return self._first_timestamp

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        return self.headers_between(position, self.size_bytes)

    def headers_between(self, position: int, limit: int) -> Iterator[tuple[int, BatchHeader]]:
        """Position and header of the sound batches that start in the range; does not open the file if it is empty."""
        if position >= limit:
            return iter(())
        if self.damage:
            parts = sound_parts(position, limit, self.damage)
            return chain.from_iterable(scan_headers(self.file, start, end) for start, end in parts)
        return scan_headers(self.file, position, limit)

    def position_of(self, offset: Offset) -> int:
        """The start of the first batch that ends at or after ``offset``; the end of the file if there is none."""
        known = self._next_reads.get(offset)
        if known is not None:
            return known
        for position, header in self.headers_from(self.offset_index.position_for(offset)):
            if header.last_offset >= offset:
                return position
        return self.size_bytes

    def position_for_time(self, timestamp_ms: int) -> int:
        """A position from which to look for the first batch that reaches the time, few batches before it.

        Each entry of the time index was made together with one of the offset index, and holds the highest time so far.
        So the first entry that reaches the time bounds the search from above, and the entry of the offset index before
        it bounds the search from below.
        """
        reached_by = self.time_index.first_from(timestamp_ms)
        if reached_by is None:
            return self.offset_index.last_position()
        return self.offset_index.position_for(Offset(reached_by - 1))

    def note_next_read(self, base_offset: Offset, position: int) -> None:
        """A reader stopped before this batch."""
        if len(self._next_reads) >= _MAX_NEXT_READS:
            self._next_reads.clear()
        self._next_reads[base_offset] = position

    def forget_reads(self) -> None:
        """Forget the positions at which readers stopped: they are no longer valid."""
        self._next_reads.clear()

    def files(self) -> list[DiskFile]:
        """The files to sync to make a sealed segment durable."""
        return [self.file, self.offset_index.file, self.time_index.file, *self.transaction_index.files()]

    def sound_until(self, position: int) -> int:
        """The start of the first damaged range after the position; the end of the file if there is none."""
        return next((damaged.start for damaged in self.damage if damaged.start >= position), self.size_bytes)

    def stored_checksums(self) -> SegmentChecksums | None:
        return read_checksums(self._disk, self._directory, self.base_offset)

    def indexes_match(self, checksums: SegmentChecksums) -> bool:
        return indexes_match(checksums, self._disk, self._directory, self.base_offset)

    def transactions_match(self, checksums: SegmentChecksums) -> bool:
        return transactions_match(checksums, self._disk, self._directory, self.base_offset)

    def drop_checksums(self) -> None:
        """Remove the checksums; must be called before the files change that they cover."""
        self.summed_up_bytes = 0
        self._disk.remove(self.checksums_path)

    def release(self) -> None:
        """Close the files."""
        self._file = None
        self.offset_index.release()
        self.time_index.release()
        self.transaction_index.release()

    def remove(self) -> None:
        """Remove the files by name; present readers are not disturbed. Not durable until the folder is synced."""
        self.release()
        self._disk.remove(self.offset_index.path)
        self._disk.remove(self.time_index.path)
        self.transaction_index.remove()
        self._disk.remove(self.path)
        self._disk.remove(self.checksums_path)


class Segments:
    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: Iterable[Segment]) -> None:
        self._segments = list(segments)
        self._bases = [segment.base_offset for segment in self._segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def holding(self, offset: Offset) -> Segment:
        """The segment whose range the offset is in; the first one for offsets before all."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1)]

    def starting_from(self, offset: Offset) -> list[Segment]:
        """The segment that holds the offset and all after it."""
        return self._segments[max(0, bisect_right(self._bases, offset) - 1) :]

    def up_to(self, offset: Offset) -> list[Segment]:
        """All segments that start before the offset."""
        return self._segments[: bisect_left(self._bases, offset)]

    def based_above(self, offset: Offset) -> list[Segment]:
        return self._segments[bisect_right(self._bases, offset) :]

    def next_base_after(self, segment: Segment) -> Offset | None:
        """The base offset of the segment after this one; None for the active one."""
        index = bisect_right(self._bases, segment.base_offset)
        return self._bases[index] if index < len(self._bases) else None

    def next_after(self, segment: Segment) -> Segment | None:
        index = bisect_right(self._bases, segment.base_offset)
        return self._segments[index] if index < len(self._segments) else None

    def with_ends(self, log_end_offset: Offset) -> list[tuple[Segment, Offset]]:
        """Each segment with the offset at which the next one starts."""
        return list(zip(self._segments, [*self._bases[1:], log_end_offset], strict=True))

    def add(self, segment: Segment) -> None:
        self._segments.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Replace the ``old`` segments, which are neighbours, by the ``new`` ones."""
        first = bisect_left(self._bases, old[0].base_offset)
        self._segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = [segment.base_offset for segment in new]
