"""How much of the metadata log this node has acknowledged, kept outside of the log's folder.

Others count on what a node acknowledged: a vote of one that has forgotten it can elect a leader who never had it. So
a log that was lost, or restored from an older copy, must be known as such. ``quorum-acknowledged`` has a line for
each time that entries became durable: the end of the log, the term of the last entry, how far the log is committed,
the node's term, and a CRC. Each line stands there twice, as damage to a single one could not be told from a power
cut. The last line that is whole counts. Lines are not synced, as each says no more than what is durable already: a
power cut may take the newest ones, nothing else can. The log is truncated only after a line that says so is durable.
"""

import re

import msgspec

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import Offset, Term
from quorate.kernel.ports import Disk, DiskFile
from quorate.quorum.core.entries import NO_TERM
from quorate.quorum.doubled_file import read_all

FILE_NAME = "quorum-acknowledged"
_NOTES_PER_FILE = 500
_LINE = re.compile(rb"(\d+ \d+ \d+ \d+) ([0-9a-f]{8})")
#: The end of the last sound line, and one that is not.
_LINES_TO_SPARE = 2


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is a lower bound."""

    end_offset: Offset = Offset(0)
    #: Of the entry before the end; NO_TERM where it is not known.
    last_term: Term = NO_TERM
    committed_offset: Offset = Offset(0)
    #: Of the node, when it wrote this.
    term: Term = NO_TERM


class StoredAcknowledged(msgspec.Struct, frozen=True, kw_only=True):
    #: None where there is no file, or nothing in it that can be read.
    last: Acknowledged | None = None
    #: More than one line after that cannot be read: it said perhaps more.
    may_be_later: bool = False
    #: A line is not as it was written.
    is_damaged: bool = False
    #: Its end is not whole, as a power cut leaves it.
    is_torn: bool = False


class AcknowledgedFile:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{FILE_NAME}"
        self._file: DiskFile | None = None
        self._notes = 0

    def read(self) -> StoredAcknowledged:
        """Where the file is missing this node has acknowledged nothing yet, or is of an earlier version."""
        stored = read_all(self._disk, self._path)
        if stored is None:
            return StoredAcknowledged()
        sound = [line for line in _LINE.finditer(stored) if line[2] == b"%08x" % crc32c(line[1])]
        whole = b"".join(b"%b\n" % line[0] for line in sound)
        rest = stored[sound[-1].end() :] if sound else stored
        return StoredAcknowledged(
            last=_parse(sound[-1][1]) if sound else None,
            may_be_later=rest.count(b"\n") > _LINES_TO_SPARE,
            is_damaged=not sound or not stored.startswith(whole[:-1]) or b"\n" in stored[len(whole) :],
            is_torn=stored != whole,
        )

    def note(self, acknowledged: Acknowledged) -> None:
        """Say that more is durable; may be forgotten."""
        if self._file is None or self._notes >= _NOTES_PER_FILE:
            self.replace(acknowledged)
            return
        self._file.append([_lines(acknowledged)])
        self._notes += 1

    def replace(self, acknowledged: Acknowledged) -> None:
        """Say durably what counts from now on, be it less than before."""
        self.close()
        self._disk.replace(self._path, _lines(acknowledged))
        self._file, self._notes = self._disk.open(self._path), 1

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _lines(acknowledged: Acknowledged) -> bytes:
    numbers = b"%d %d %d %d" % msgspec.structs.astuple(acknowledged)
    return b"%b %08x\n" % (numbers, crc32c(numbers)) * 2


def _parse(numbers: bytes) -> Acknowledged:
    end_offset, last_term, committed_offset, term = map(int, numbers.split())
    return Acknowledged(
        end_offset=Offset(end_offset),
        last_term=Term(last_term),
        committed_offset=Offset(committed_offset),
        term=Term(term),
    )
