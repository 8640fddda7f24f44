"""The sparse indexes of a segment: offset to file position, and timestamp to offset, in Kafka's formats.

Entries are sorted and of fixed size. New ones collect in memory and are stored many at a time, since after a crash the
scan of the log makes them again anyway. The file is read at the first search and its content kept until ``release``, so
an index costs no memory while it is idle.
"""

import struct
from bisect import bisect_right

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk, DiskFile

_STORE_AT_BYTES = 32 << 10
_OFFSET_ENTRY = struct.Struct(">ii")
_TIME_ENTRY = struct.Struct(">qi")
_RELATIVE_OFFSET, _POSITION = 0, 1  # The columns of an offset entry.
_TIMESTAMP, _OFFSET_OF_TIME = 0, 1  # The columns of a time entry.


class IndexFile:
    """Fixed-size entries: the first ones in the file, the newest ones in memory."""

    __slots__ = ("_content", "_crc", "_disk", "_entry", "_file", "_stored", "_tail", "path")

    def __init__(self, disk: Disk, path: str, entry: struct.Struct, *, is_new: bool) -> None:
        self.path = path
        self._disk = disk
        self._entry = entry
        self._file: DiskFile | None = None
        self._stored: int | None = 0 if is_new else None  # Entries in the file; None until it was looked at.
        self._crc: int | None = 0 if is_new else None  # CRC of the entries in the file; None if unknown.
        self._tail = bytearray()
        self._content: bytes | None = None  # Of the file, from the first search until it changes.

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

    def count_up_to(self, limit: int, column: int) -> int:
        """How many entries have this column at or below the limit; the column rises from entry to entry."""
        entry, tail = self._entry, self._tail
        stored = self._stored_entries()
        if tail and (stored == 0 or entry.unpack_from(tail)[column] <= limit):
            return stored + _count_up_to(tail, entry, column, limit)
        if self._content is None:
            self._content = self._open().read(0, stored * entry.size) if stored else b""
        return _count_up_to(self._content, entry, column, limit)

    @property
    def size_bytes(self) -> int:
        return self._stored_entries() * self._entry.size + len(self._tail)

    def is_full(self, limit_bytes: int) -> bool:
        """Whether one more entry would reach the limit."""
        stored = self._stored if self._stored is not None else self._stored_entries()
        return (stored + 1) * self._entry.size + len(self._tail) >= limit_bytes

    def append(self, first: int, second: int) -> None:
        self._tail += self._entry.pack(first, second)
        if len(self._tail) >= _STORE_AT_BYTES:
            try:
                self.store()
            except OSError:
                return  # Still whole in memory: the next entry, or the roll of the segment, retries.

    def keep_first(self, count: int) -> None:
        stored = self._stored_entries()
        if count <= stored:
            self._tail.clear()
            if count < stored:
                self._content = None
                self._open().truncate(count * self._entry.size)
                self._stored = count
                self._crc = crc32c(self._open().read(0, count * self._entry.size))
        else:
            del self._tail[(count - stored) * self._entry.size :]

    def keep_first_bytes(self, size_bytes: int, crc: int) -> None:
        """Keep entries that are known to be sound, and cut off the rest of the file, which may be torn."""
        if self._disk_size() > size_bytes:
            self._open().truncate(size_bytes)
        self._stored = size_bytes // self._entry.size
        self._crc = crc
        self._tail = bytearray()
        self._content = None

    def store(self) -> None:
        """Write the entries that are only in memory, creating the file if need be. On failure nothing has changed."""
        file = self._open()
        stored = self._stored_entries()
        try:
            if self._tail:
                file.append([bytes(self._tail)])
        except OSError:
            file.truncate(stored * self._entry.size)
            raise
        self._stored = stored + len(self._tail) // self._entry.size
        if self._crc is not None:
            self._crc = crc32c(self._tail, self._crc)
        self._tail = bytearray()
        self._content = None

    @property
    def stored_checksum(self) -> tuple[int, int] | None:
        """The number of bytes that were stored, and their CRC; None where it is unknown what the file should hold."""
        return None if self._crc is None else (self._stored_entries() * self._entry.size, self._crc)

    @property
    def is_as_stored(self) -> bool:
        expected = self.stored_checksum
        if expected is None or expected[0] == 0:
            return True
        size_bytes, crc = expected
        return crc32c(self._open().read(0, size_bytes)) == crc

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
        self._stored = self._crc = 0
        self._tail = bytearray()
        self._content = None
        try:
            self._disk_size()
        except FileNotFoundError:
            return
        self._open().truncate(0)

    def release(self) -> None:
        """Close the file; the next use opens it again."""
        self._file = None
        self._content = None

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
        """The position from which to look for the batch that holds ``offset``."""
        return self._position_before(self.count_up_to(offset - self._base_offset, _RELATIVE_OFFSET))

    def position_at_or_before(self, position: int) -> int:
        """The start of a batch at or before the position; 0 where there is no entry so early."""
        return self._position_before(self.count_up_to(position, _POSITION))

    def last_position(self) -> int:
        """The start of the last batch that has an entry; 0 where none has."""
        return self._position_before(len(self))

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that hold the offset or higher ones."""
        self.keep_first(self.count_up_to(offset - self._base_offset - 1, _RELATIVE_OFFSET))

    def _position_before(self, index: int) -> int:
        return self[index - 1][1] if index else 0


class TimeIndex(IndexFile):
    """Highest timestamp so far to the last offset, relative to the segment's base, of the batch that carries it."""

    __slots__ = ("_base_offset",)

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, is_new: bool) -> None:
        super().__init__(disk, path, _TIME_ENTRY, is_new=is_new)
        self._base_offset = base_offset

    def add(self, timestamp_ms: int, offset: Offset) -> None:
        """Add the entry unless it says nothing new: timestamps rise strictly from entry to entry."""
        if timestamp_ms > self._last_timestamp():
            self.append(timestamp_ms, offset - self._base_offset)

    def first_from(self, timestamp_ms: int) -> Offset | None:
        """The last offset of the batch of the first entry at or after the time; None where there is no such entry."""
        index = self.count_up_to(timestamp_ms - 1, _TIMESTAMP)
        return self._absolute(index) if index < len(self) else None

    def last(self) -> tuple[int, Offset] | None:
        """The highest timestamp and the last offset of its batch."""
        count = len(self)
        return (self[count - 1][0], self._absolute(count - 1)) if count else None

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries of batches that hold the offset or higher ones."""
        self.keep_first(self.count_up_to(offset - self._base_offset - 1, _OFFSET_OF_TIME))

    def _last_timestamp(self) -> int:
        if self._tail:
            timestamp_ms: int = self._entry.unpack_from(self._tail, len(self._tail) - self._entry.size)[_TIMESTAMP]
            return timestamp_ms
        count = len(self)
        return self[count - 1][_TIMESTAMP] if count else -1

    def _absolute(self, index: int) -> Offset:
        return Offset(self._base_offset + self[index][1])


def _count_up_to(entries: bytes | bytearray, entry: struct.Struct, column: int, limit: int) -> int:
    unpack_from, size = entry.unpack_from, entry.size
    return bisect_right(
        range(len(entries) // size), limit, key=lambda index: unpack_from(entries, index * size)[column]
    )
