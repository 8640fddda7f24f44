"""What can be read of the metadata log's files, entry by entry, before anything is changed there.

The CRC of a batch covers neither its offset nor its leader epoch, which is the entry's term. So the record's key says
what an entry is, its kind, term and offset, and up to where the log was durable when it was written: what cannot be
read below that has been damaged, and was not torn by a crash. (Earlier versions wrote the kind alone.)
"""

import struct
from collections.abc import Iterator, Sequence

import msgspec

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, Term
from quorate.kernel.ports import Disk
from quorate.quorum.core.entries import NO_TERM, Entry, EntryKind, LogPosition
from quorate.quorum.doubled_file import read_all
from quorate.records.batch import check_crc, read_header
from quorate.records.builder import build_batch
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.records.record import Record, iterate_records
from quorate.storage.checkpoints import read_offset
from quorate.storage.file_names import LOG, LOG_START_CHECKPOINT, offsets_of, path_of

_KEY = struct.Struct(">BIQQ")
_OFFSET_BYTES = 8
#: How many entries one damaged place can swallow and the search for what comes after it still goes on.
_MOST_SWALLOWED = 64


class ScannedLog(msgspec.Struct, frozen=True, kw_only=True):
    #: The sound ones, in order. Offsets are left out where something cannot be read.
    entries: tuple[Entry, ...]
    #: Where something cannot be read first, and why. At the end of the log that is what a crash leaves, too.
    problem: str | None
    #: Sound entries come before the problem, up to here.
    problem_offset: Offset
    #: The end of what was written when the unreadable entry was durable, as far as a later one tells.
    written_later: LogPosition | None
    #: Where the log was made to start, if that can be read.
    stored_start: Offset

    def entries_from(self, start: Offset) -> tuple[Entry, ...]:
        """Those that follow each other without a gap."""
        first = next((at for at, entry in enumerate(self.entries) if entry.offset >= start), len(self.entries))
        run = self.entries[first:]
        count = next((at for at, entry in enumerate(run) if entry.offset != start + at), len(run))
        return run[:count]


def encode_entry(entry: Entry, durable_end: Offset, now_ms: int) -> bytes:
    key = _KEY.pack(entry.kind, entry.term, entry.offset, durable_end)
    record = Record(offset=entry.offset, timestamp=now_ms, key=key, value=entry.payload, headers=())
    return build_batch([record], base_offset=entry.offset, leader_epoch=LeaderEpoch(entry.term))


def scan_log(disk: Disk, directory: str) -> ScannedLog:
    scan = _Scan()
    for base in offsets_of(disk.list_directory(directory), LOG):
        path = path_of(directory, base, LOG)
        scan.read_file(path, base, read_all(disk, path) or b"")
    try:
        stored_start = read_offset(disk, f"{directory}/{LOG_START_CHECKPOINT}") or Offset(0)
    except (KafkaError, OSError):
        stored_start = Offset(0)
    return ScannedLog(
        entries=tuple(scan.entries),
        problem=scan.problem,
        problem_offset=scan.problem_offset,
        written_later=scan.written_later,
        stored_start=stored_start,
    )


class _Scan:
    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.problem: str | None = None
        self.problem_offset = Offset(0)
        self.written_later: LogPosition | None = None
        self._next_offset: Offset | None = None
        self._last_term = NO_TERM

    def read_file(self, path: str, base: Offset, content: bytes) -> None:
        # A file between the two may be missing, which is no damage.
        self._next_offset = base if self._next_offset is None else max(base, self._next_offset)
        position, most_swallowed = 0, 0
        while position < len(content):
            try:
                entry, size, durable_end = self._entry_at(content, position, most_swallowed)
            except (CorruptBatch, UnsupportedMagic, ValueError, IndexError, struct.error) as error:
                self._note(f"{path} at position {position}: {error}")
                position, most_swallowed = self._next_sound(content, position + 1), _MOST_SWALLOWED
                continue
            self.entries.append(entry)
            if self.problem is not None and durable_end > self.problem_offset:
                self.written_later = LogPosition(entry.term, Offset(entry.offset + 1))
            self._next_offset, self._last_term = Offset(entry.offset + 1), entry.term
            position, most_swallowed = position + size, 0

    def _note(self, problem: str) -> None:
        if self.problem is None:
            self.problem, self.problem_offset = problem, self._next_offset or Offset(0)

    def _entry_at(self, content: bytes, position: int, most_swallowed: int) -> tuple[Entry, int, int]:
        header = read_header(content, position)
        batch = content[position : position + header.size_bytes]
        if len(batch) < header.size_bytes:
            raise CorruptBatch("cut off by the end of the file")
        check_crc(batch, 0, read_header(batch))
        (record,) = iterate_records(batch, 0)
        entry = Entry(
            header.base_offset,
            Term(header.partition_leader_epoch),
            EntryKind((record.key or b"\0")[0]),
            record.value or b"",
        )
        durable_end = _checked_key(entry, record.key or b"")
        expected = self._next_offset or Offset(0)
        if not expected <= entry.offset <= expected + most_swallowed or entry.term < self._last_term:
            raise CorruptBatch(f"offset {entry.offset} of term {entry.term} does not follow what stands before it")
        return entry, header.size_bytes, durable_end

    def _next_sound(self, content: bytes, position: int) -> int:
        """Where one of the next entries can be read again; the end of the file if nowhere."""
        for found in self._candidates(content, position):
            try:
                self._entry_at(content, found, _MOST_SWALLOWED)
            except (CorruptBatch, UnsupportedMagic, ValueError, IndexError, struct.error):
                continue
            return found
        return len(content)

    def _candidates(self, content: bytes, position: int) -> Iterator[int]:
        expected = self._next_offset or Offset(0)
        for offset in range(expected, expected + _MOST_SWALLOWED):
            found = content.find(offset.to_bytes(_OFFSET_BYTES), position)
            if found >= 0:
                yield found


def _checked_key(entry: Entry, key: bytes) -> int:
    """Up to where the log was durable when the entry was written; 0 where an earlier version wrote it."""
    if len(key) != _KEY.size:
        return 0
    _, term, offset, durable_end = _KEY.unpack(key)
    if (offset, term) != (entry.offset, entry.term):
        raise CorruptBatch(f"entry {offset} of term {term} stands as entry {entry.offset} of term {entry.term}")
    return int(durable_end)


def end_of(entries: Sequence[Entry], start: Offset) -> Offset:
    return Offset(entries[-1].offset + 1) if entries else start
