"""The transactions in a log: those that are open or not committed, and an index of those that were aborted.

A reader of committed records must not pass the first record of an open transaction, nor of one whose marker is not
committed. A marker alone decides nothing: until the high watermark has passed it, another leader may not have it, and
what it ended must stay out of sight.

The aborted transactions that ended in a segment are in its ``.txnindex``, in Kafka's format. An entry is added when the
abort marker is written, so entries ascend by the marker's offset. Most segments have none, and then no file either. New
entries collect in memory and are stored when the segment is sealed; after a crash the replay of the log makes them
again.
"""

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, ProducerId
from quorate.kernel.ports import Buffer, Disk, DiskFile

_VERSION = 0
# Version, producer id, first offset, last offset, last stable offset.
_ENTRY = struct.Struct(">hqqqq")


class TransactionIndexEntry(NamedTuple):
    """One aborted transaction, as the index of the segment with its marker has it."""

    producer_id: ProducerId
    first_offset: Offset
    last_offset: Offset  # Of the marker.
    #: The last stable offset after this transaction had ended: all that began before it have ended by then.
    last_stable_offset: Offset


class DamagedTransactionIndex(KafkaError):
    """The file is not what was stored. It has to be made again from the log; the next start of the node does so."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class TransactionIndex:
    __slots__ = ("_base_offset", "_disk", "_entries", "_stored", "path")

    def __init__(self, disk: Disk, path: str, base_offset: Offset, *, is_new: bool) -> None:
        self.path = path
        self._disk = disk
        self._base_offset = base_offset
        # None until first needed: most segments are never read by a consumer of committed records only.
        self._entries: list[TransactionIndexEntry] | None = [] if is_new else None
        self._stored = 0  # How many of the entries are in the file.

    @property
    def is_empty(self) -> bool:
        return not (self._loaded() if self._entries is None else self._entries)

    def __iter__(self) -> Iterator[TransactionIndexEntry]:
        return iter(self._loaded())

    def ended_from(self, offset: Offset) -> Iterable[TransactionIndexEntry]:
        """The transactions whose marker stands at or after the offset, by their markers."""
        entries = self._loaded()
        if not entries:
            return ()
        return entries[bisect_left(entries, offset, key=attrgetter("last_offset")) :]

    def add(self, aborted: TransactionIndexEntry) -> None:
        """Take in a transaction; one that is known already is passed over, as when a log is replayed."""
        entries = self._loaded()
        if not entries or entries[-1].last_offset < aborted.last_offset:
            entries.append(aborted)

    def truncate_to(self, offset: Offset) -> None:
        """Forget the transactions that ended at or above the offset, durably: there they are open again."""
        entries = self._loaded()
        kept = bisect_left(entries, offset, key=attrgetter("last_offset"))
        del entries[kept:]
        if kept < self._stored:
            file = self._open()
            file.truncate(kept * _ENTRY.size)
            file.sync()
            self._stored = kept

    def forget(self) -> None:
        """Drop all entries from memory. The file stays as it is until ``replace`` or ``remove``."""
        self._entries, self._stored = [], 0

    def store(self) -> None:
        """Write what is only in memory. On failure nothing has changed."""
        if self._entries is None or self._stored == len(self._entries):
            return
        if not self._is_as_stored(self._entries):
            self.replace()
            return
        file = self._open()
        try:
            file.append([encode_entries(self._entries[self._stored :])])
        except OSError:
            file.truncate(self._stored * _ENTRY.size)
            raise
        self._stored = len(self._entries)

    def _is_as_stored(self, entries: list[TransactionIndexEntry]) -> bool:
        stored = encode_entries(entries[: self._stored])
        return not stored or self._open().read(0, len(stored)) == stored

    def replace(self) -> None:
        """Put the whole file in place, durably, also where it is empty: it is to take the place of one that is not."""
        self._disk.replace(self.path, encode_entries(self._loaded()))
        self._stored = len(self._loaded())

    def files(self) -> list[DiskFile]:
        """What must be synced: nothing where no transaction was aborted."""
        return [self._open()] if self._stored else []

    def release(self) -> None:
        """Let go of what the file holds; that there is none is remembered."""
        if self._stored and self._entries is not None and self._stored == len(self._entries):
            self._entries = None

    def remove(self) -> None:
        self._disk.remove(self.path)

    def is_usable(self) -> bool:
        """Whether the file, if there is one, holds what was stored."""
        try:
            self._loaded()
        except DamagedTransactionIndex:
            return False
        return True

    def _loaded(self) -> list[TransactionIndexEntry]:
        if self._entries is None:
            self._entries = self._read()
            self._stored = len(self._entries)
        return self._entries

    def _read(self) -> list[TransactionIndexEntry]:
        try:
            file = self._disk.open(self.path)
        except FileNotFoundError:
            return []
        try:
            entries = decode_entries(file.read(0, file.size()))
        finally:
            file.close()
        offsets = [self._base_offset - 1, *(entry.last_offset for entry in entries)]
        if any(later <= earlier for earlier, later in pairwise(offsets)):
            raise DamagedTransactionIndex(f"{self.path} has entries out of order")
        return entries

    def _open(self) -> DiskFile:
        return self._disk.open(self.path, create=True)


def encode_entries(entries: Iterable[TransactionIndexEntry]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *entry) for entry in entries)


def decode_entries(content: Buffer) -> list[TransactionIndexEntry]:
    """Raises ``DamagedTransactionIndex`` unless the content is whole entries of the version that Kafka writes."""
    if len(content) % _ENTRY.size:
        raise DamagedTransactionIndex(f"{len(content)} bytes are not whole entries")
    entries = []
    for version, *fields in _ENTRY.iter_unpack(content):
        if version != _VERSION:
            raise DamagedTransactionIndex(f"an entry of version {version}")
        entries.append(TransactionIndexEntry(*fields))
    return entries


class EndedTransaction(NamedTuple):
    first_offset: Offset
    marker_offset: Offset


class OpenTransactions:
    __slots__ = ("_ended", "_first_offsets", "_first_unstable", "_is_known")

    def __init__(self) -> None:
        self._first_offsets: dict[ProducerId, Offset] = {}
        self._ended: deque[EndedTransaction] = deque()  # Their markers are not committed; by those markers.
        self._first_unstable: Offset | None = None
        self._is_known = True  # Whether the one above is still right.

    @property
    def first_unstable_offset(self) -> Offset | None:
        """The first record that may not be shown as committed, however far the high watermark is; None if all may."""
        if not self._is_known:
            first_offsets = [*self._first_offsets.values(), *(ended.first_offset for ended in self._ended)]
            self._first_unstable = min(first_offsets, default=None)
            self._is_known = True
        return self._first_unstable

    def begin(self, producer_id: ProducerId, first_offset: Offset) -> None:
        self._first_offsets[producer_id] = first_offset
        self._is_known = False

    def end(self, producer_id: ProducerId, marker_offset: Offset) -> EndedTransaction | None:
        """The marker stands in the log; what it ended, if anything was open."""
        first_offset = self._first_offsets.pop(producer_id, None)
        if first_offset is None:
            return None
        ended = EndedTransaction(first_offset, marker_offset)
        self._ended.append(ended)
        self._is_known = False
        return ended

    def adopt_ended(self, earlier: "OpenTransactions", end: Offset) -> None:
        """Take over those that ended below ``end``: a snapshot, from which this was rebuilt, has open ones only."""
        known = {ended.marker_offset: ended for ended in (*earlier._ended, *self._ended)}
        self._ended = deque(known[marker_offset] for marker_offset in sorted(known) if marker_offset < end)
        self._is_known = False

    def stable_after(self, ended: EndedTransaction) -> Offset:
        """Where the log is stable once this one has ended: before the first that is open, or after its marker."""
        return min(self._first_offsets.values(), default=Offset(ended.marker_offset + 1))

    def commit_up_to(self, high_watermark: Offset) -> None:
        """Markers below the high watermark are in the log for good."""
        ended = self._ended
        while ended and ended[0].marker_offset < high_watermark:
            ended.popleft()
            self._is_known = False
