"""Selecting the records that a compacted log keeps: the latest of each key, tombstones and markers for a while.

Tombstones get a horizon in the first round that meets them and go after it (KIP-534); so do transaction markers once
nothing of their transaction is left. Only what is stable is compacted, so every transaction in it has ended. The
records of an aborted one are removed at once, and supersede nothing. A marker must stay as long as a batch of its
transaction does: without it the batch would belong to the producer's next transaction.

Offsets never change. A batch that loses nothing is kept byte for byte; otherwise it is built again, sparse, with
its codec. A batch that loses all its records is kept as a bare header where it tells something that nothing else does.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Mapping
from hashlib import blake2b
from operator import attrgetter

import msgspec

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader, TimestampType
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_keys, iterate_records
from quorate.storage.transactions import TransactionIndexEntry

_DIGEST_BYTES = 20
_NO_OFFSET = Offset(-1)
_MAX_TIMESTAMP_MS = 2**63 - 1
_FIRST_OFFSET = attrgetter("first_offset")


class LatestOffsets:
    """The latest offset of each key in the dirty part of a log. Long keys count by their digest, to save memory."""

    __slots__ = ("_offsets", "end")

    def __init__(self, start: Offset) -> None:
        self._offsets: dict[bytes, Offset] = {}
        self.end = start  # Records at or above were not looked at, and all stay.

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, batch: memoryview, header: BatchHeader) -> None:
        offsets = self._offsets
        for offset, key, _ in iterate_keys(batch):
            if key is not None:
                offsets[_short(key)] = offset
        self.end = header.next_offset

    def of(self, key: bytes) -> Offset:
        return self._offsets.get(_short(key), _NO_OFFSET)


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    latest: LatestOffsets
    now_ms: int
    delete_retention_ms: int
    # Batches that end with one of these stay, if only as a header: the last one of a producer, and the last one of the
    # round, without which the log could end earlier after a restart.
    kept_last_offsets: Container[Offset]
    # Producers of which only a marker is known, without its offset: all their markers of that epoch stay.
    kept_marker_epochs: Mapping[ProducerId, ProducerEpoch] = {}

    @property
    def delete_horizon_ms(self) -> int:
        """The time from which records that get their horizon now may be removed. A topic may say never (2^63 - 1)."""
        return min(self.now_ms + self.delete_retention_ms, _MAX_TIMESTAMP_MS)


def compact_batch(batch: memoryview, header: BatchHeader, rules: CompactionRules) -> memoryview | bytes:
    """The part of a batch of records that is kept; empty if nothing is."""
    horizon_ms = header.base_timestamp if header.has_delete_horizon else None
    kept, has_tombstone = _kept_offsets(batch, horizon_ms, rules)
    if not kept:
        return _header_alone(batch, header) if header.last_offset in rules.kept_last_offsets else b""
    if has_tombstone and horizon_ms is None:
        horizon_ms = rules.delete_horizon_ms
    elif len(kept) == header.record_count:
        return batch
    records = [record for record in iterate_records(batch) if record.offset in kept]
    return _rebuild(records, header, horizon_ms)


def compact_aborted(batch: memoryview, header: BatchHeader, rules: CompactionRules) -> memoryview | bytes:
    """The part of an aborted batch that is kept: never a record."""
    return _header_alone(batch, header) if header.last_offset in rules.kept_last_offsets else b""


def compact_marker(batch: memoryview, header: BatchHeader, rules: CompactionRules) -> memoryview | bytes:
    """The part that is kept of a marker whose transaction has no batch left; empty if nothing is."""
    if not header.has_delete_horizon and header.record_count:
        return _rebuild(list(iterate_records(batch)), header, rules.delete_horizon_ms)
    if header.record_count and header.base_timestamp > rules.now_ms:
        return batch
    is_last_word = rules.kept_marker_epochs.get(header.producer_id) == header.producer_epoch
    if is_last_word or header.last_offset in rules.kept_last_offsets:
        return _header_alone(batch, header)
    return b""


def _kept_offsets(batch: memoryview, horizon_ms: int | None, rules: CompactionRules) -> tuple[set[Offset], bool]:
    """The offsets of the records that stay, and whether there is a tombstone among them."""
    tombstones_go = horizon_ms is not None and horizon_ms <= rules.now_ms
    latest = rules.latest
    kept: set[Offset] = set()
    has_tombstone = False
    for offset, key, has_value in iterate_keys(batch):
        if offset < latest.end and (key is None or offset < latest.of(key) or (tombstones_go and not has_value)):
            continue
        kept.add(offset)
        has_tombstone = has_tombstone or not has_value
    return kept, has_tombstone


def _header_alone(batch: memoryview, header: BatchHeader) -> memoryview | bytes:
    if header.record_count == 0:
        return batch
    return _rebuild([], header, None)


def _rebuild(records: list[Record], header: BatchHeader, horizon_ms: int | None) -> bytes:
    keeps_maximum = not records or header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return build_batch(
        records,
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp if keeps_maximum else None,
        delete_horizon_ms=horizon_ms,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
        is_control=header.is_control,
    )


def _short(key: bytes) -> bytes:
    return key if len(key) <= _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


class CleanedTransactions:
    """The transactions seen so far in one pass over the log, from its start on."""

    __slots__ = ("_aborted", "_met")

    def __init__(self, aborted: Iterable[TransactionIndexEntry]) -> None:
        self._aborted: dict[ProducerId, list[TransactionIndexEntry]] = {}
        for transaction in sorted(aborted, key=_FIRST_OFFSET):
            self._aborted.setdefault(transaction.producer_id, []).append(transaction)
        # Producers with a batch since their last marker.
        self._met: set[ProducerId] = set()

    def meet(self, header: BatchHeader) -> bool:
        """Note a batch of records; returns whether it was aborted."""
        if not header.is_transactional:
            return False
        self._met.add(header.producer_id)
        return self._aborted_with(header.producer_id, header.base_offset) is not None

    def meet_marker(self, header: BatchHeader) -> bool:
        """Note a marker; returns whether it may go, as no batch of its transaction is left."""
        has_batches = header.producer_id in self._met
        self._met.discard(header.producer_id)
        return not has_batches

    def ended_at(self, header: BatchHeader) -> TransactionIndexEntry | None:
        """The aborted transaction that the marker ended, if it is known to have had records."""
        transaction = self._aborted_with(header.producer_id, header.base_offset)
        return transaction if transaction is not None and transaction.last_offset == header.base_offset else None

    def _aborted_with(self, producer_id: ProducerId, offset: Offset) -> TransactionIndexEntry | None:
        """The aborted transaction of the producer that the offset is in; its transactions never overlap."""
        transactions = self._aborted.get(producer_id)
        if transactions is None:
            return None
        index = bisect_right(transactions, offset, key=_FIRST_OFFSET)
        if index == 0 or transactions[index - 1].last_offset < offset:
            return None
        return transactions[index - 1]
