"""How much of the metadata log this node has acknowledged, kept outside of the log's folder.

Others count on what a node acknowledged: a vote of one that has forgotten it can elect a leader who never had it. So a
log that was lost, or restored from an older copy, must be known as such. ``quorum-acknowledged`` has a line for each
time that entries became durable: the end of the log, the term of the last entry, how far the log is committed, the
node's term, and a CRC. The last line that is whole counts. Lines are not synced, as each says no more than what is
durable already: a power cut may take the newest ones, nothing else can. The log is truncated only after a line that
says so is durable.
"""

from contextlib import suppress

import msgspec
from crc32c import crc32c

from quorate.kernel.disk import Disk, DiskFile
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import Offset, Term
from quorate.raft.entries import NO_TERM

FILE_NAME = "quorum-acknowledged"
_LINES_PER_FILE = 1_000


class Acknowledged(msgspec.Struct, frozen=True, kw_only=True):
    """Everything is a lower bound."""

    end_offset: Offset = Offset(0)
    #: Of the entry before the end; NO_TERM where it is not known.
    last_term: Term = NO_TERM
    committed_offset: Offset = Offset(0)
    #: Of the node, when it wrote this.
    term: Term = NO_TERM


class AcknowledgedFile:
    def __init__(self, disk: Disk, data_dir: str) -> None:
        self._disk = disk
        self._path = f"{data_dir}/{FILE_NAME}"
        self._file: DiskFile | None = None
        self._lines = 0

    def read(self) -> Acknowledged | None:
        """None where the file is missing: this node has acknowledged nothing yet, or is of an earlier version."""
        try:
            file = self._disk.open(self._path)
        except FileNotFoundError:
            return None
        try:
            lines = file.read(0, file.size()).split(b"\n")
        finally:
            file.close()
        for line in reversed(lines):
            with suppress(ValueError):
                return _parse(line)
        raise QuorateError(f"{self._path} is damaged: restore it, or remove this node and add it anew")

    def note(self, acknowledged: Acknowledged) -> None:
        """Say that more is durable; may be forgotten."""
        if self._file is None or self._lines >= _LINES_PER_FILE:
            self.replace(acknowledged)
            return
        self._file.append([_line(acknowledged)])
        self._lines += 1

    def replace(self, acknowledged: Acknowledged) -> None:
        """Say durably what counts from now on, be it less than before."""
        self.close()
        self._disk.replace(self._path, _line(acknowledged))
        self._file, self._lines = self._disk.open(self._path), 1

    def sync(self) -> None:
        if self._file is not None:
            self._file.sync()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(acknowledged: Acknowledged) -> bytes:
    numbers = b"%d %d %d %d" % msgspec.structs.astuple(acknowledged)
    return b"%b %08x\n" % (numbers, crc32c(numbers))


def _parse(line: bytes) -> Acknowledged:
    numbers, _, crc = line.rpartition(b" ")
    if crc != b"%08x" % crc32c(numbers):
        raise ValueError("torn or damaged")
    end_offset, last_term, committed_offset, term = map(int, numbers.split())
    return Acknowledged(
        end_offset=Offset(end_offset),
        last_term=Term(last_term),
        committed_offset=Offset(committed_offset),
        term=Term(term),
    )
