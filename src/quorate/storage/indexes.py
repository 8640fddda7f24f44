"""The sparse indexes of a segment: offset to file position, and timestamp to offset, in Kafka's formats.

Entries are sorted and of fixed size. New ones collect in memory and are stored in lumps, since after a crash the scan
of the log makes them again anyway. What is stored is searched in place, so an index costs no memory while it is idle.
"""

import struct
from bisect import bisect_right
from collections.abc import Callable

from quorate.kernel.disk import Disk, DiskFile
from quorate.kernel.ids import Offset

_STORE_AT_BYTES = 32 << 10
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")


class IndexFile:
    """Fixed-size entries: the first ones in the file, the newest ones in memory."""

    __slots__ = ("_disk", "_entry", "_file", "_stored", "_tail", "path")

    def __init__(self, disk: Disk, path: str, entry: struct.Struct, *, is_new: bool) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._file: DiskFile | None = None
        self._stored: int | None = 0 if is_new else None  # Entries in the file; None until somebody asks.
        self._tail = bytearray()

    def __len__(self) -> int:
        return self._stored_entries() + len(self._tail) // self._entry.size

    def __getitem__(self, index: int) -> tuple[int, int]:
        size = self._entry.size
        in_tail = index - self._stored_entries()
        if in_tail >= 0:
            first, second = self._entry.unpack_from(self._tail, in_tail * size)
        else:
            first, second = self._entry.unpack(self._open().read(index * size, size))
        return first, second

    @property
    def entry_bytes(self) -> int:
        return self._entry.size

    @property
    def size_bytes(self) -> int:
        return len(self) * self._entry.size

    def append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        if len(self._tail) >= _STORE_AT_BYTES:
            try:
                self.store()
            except OSError:
                return  # Still whole in memory: the next entry, or the roll of the segment, tries again.

    def keep_first(self, count: int) -> None:
        stored = self._stored_entries()
        if count <= stored:
            self._tail.clear()
            if count < stored:
                self._open().truncate(count * self._entry.size)
                self._stored = count
        else:
            del self._tail[(count - stored) * self._entry.size :]

    def drop_last_while(self, is_wrong: Callable[[int, int], bool]) -> None:
        """Take entries off the end of a stored index, with what is left of a torn one behind them."""
        count = len(self)
        while count and is_wrong(*self[count - 1]):
            count -= 1
        if self._disk_size() > count * self._entry.size:
            self._open().truncate(count * self._entry.size)
        self._stored = count
        self._tail = bytearray()

    def store(self) -> None:
        """Write what is only in memory, creating the file if need be. On failure nothing has changed."""
        file = self._open()
        stored = self._stored_entries()
        try:
            if self._tail:
                file.append([bytes(self._tail)])
        except OSError:
            file.truncate(stored * self._entry.size)
            raise
        self._stored = stored + len(self._tail) // self._entry.size
        self._tail = bytearray()

    @property
    def file(self) -> DiskFile:
        return self._open()

    def stored_is_whole(self) -> bool:
        """Whether the file holds whole entries only, as one that was stored and synced does."""
        try:
            return self._disk_size() % self._entry.size == 0
        except FileNotFoundError:
            return False

    def reset(self) -> None:
        """Forget every entry, also in a file that is damaged."""
        self._stored = 0
        self._tail = bytearray()
        try:
            self._disk_size()
        except FileNotFoundError:
            return
        self._open().truncate(0)

    def release(self) -> None:
        """Let go of the open file; the next use opens it again."""
        self._file = None

    def _stored_entries(self) -> int:
        if self._stored is None:
            self._stored = self._disk_size() // self._entry.size
        return self._stored

    def _disk_size(self) -> int:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file.size()

    def _open(self) -> DiskFile:
        if self._file is None:
            self._file = self._disk.open(self.path, create=True)
        return self._file


class OffsetIndex(IndexFile):
    """Last offset of a batch, relative to the segment's base, to the position where the batch starts."""

    __slots__ = ("_base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, is_new: bool) -> None:
        super().__init__(disk, path, _OFFSET_ENTRY, is_new=is_new)
        self._base_offset = base_offset

    def add(self, last_offset: Offset, position: int) -> None:
        self.append(last_offset - self._base_offset, position)

    def position_for(self, offset: Offset) -> int:
        """Where to start looking for the batch that holds ``offset``."""
        return self._position_before(bisect_right(range(len(self)), offset - self._base_offset, key=self._relative))

    def position_at_or_before(self, position: int) -> int:
        """The start of a batch at or before the position; 0 where no entry stands there."""
        return self._position_before(bisect_right(range(len(self)), position, key=self._position))

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that hold the offset or higher ones."""
        self.keep_first(bisect_right(range(len(self)), offset - self._base_offset - 1, key=self._relative))

    def _position_before(self, index: int) -> int:
        return self[index - 1][1] if index else 0

    def _relative(self, index: int) -> int:
        return self[index][0]

    def _position(self, index: int) -> int:
        return self[index][1]


class TimeIndex(IndexFile):
    """Highest timestamp so far to the last offset, relative to the segment's base, of the batch that carries it."""

    __slots__ = ("_base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, is_new: bool) -> None:
        super().__init__(disk, path, _TIME_ENTRY, is_new=is_new)
        self._base_offset = base_offset

    def add(self, timestamp_ms: int, offset: Offset) -> None:
        """Add the entry unless it says nothing new: timestamps rise strictly from entry to entry."""
        count = len(self)
        if timestamp_ms >= 0 and (count == 0 or timestamp_ms > self[count - 1][0]):
            self.append(timestamp_ms, offset - self._base_offset)

    def offset_for(self, timestamp_ms: int) -> Offset:
        """The offset from which on records of the timestamp, or later, can be."""
        index = bisect_right(range(len(self)), timestamp_ms, key=self._timestamp)
        return self._absolute(index - 1) if index else self._base_offset

    def last(self) -> tuple[int, Offset] | None:
        """The highest timestamp and the last offset of its batch."""
        count = len(self)
        return (self[count - 1][0], self._absolute(count - 1)) if count else None

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that hold the offset or higher ones."""
        self.keep_first(bisect_right(range(len(self)), offset - self._base_offset - 1, key=self._relative))

    def _absolute(self, index: int) -> Offset:
        return Offset(self._base_offset + self[index][1])

    def _timestamp(self, index: int) -> int:
        return self[index][0]

    def _relative(self, index: int) -> int:
        return self[index][1]
