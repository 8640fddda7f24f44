"""Compacting a log: which records it keeps, and the three steps: plan it, do the work aside, put the result in place.

Kept are the latest record of each key, tombstones and markers for a while. Tombstones get a horizon in the first round
that meets them and go after it (KIP-534); so do transaction markers once nothing of their transaction is left. Only
what is stable is compacted, so every transaction in it has ended. The records of an aborted one are removed at once,
and supersede nothing. A marker must stay as long as a batch of its transaction does: without it the batch would belong
to the producer's next transaction.

Offsets never change. A batch that loses nothing is kept byte for byte; otherwise it is built again, sparse, with
its codec. A batch that loses all its records is kept as a bare header where it tells something that nothing else does.

``plan_cleaning`` and ``install`` belong to the loop's thread, ``clean`` to a worker's: it reads only files that no
longer change, through handles that the plan holds, and writes only files that the log does not know yet. If
the log has changed meanwhile, ``install`` puts in place what still fits and throws the rest away.
"""

from bisect import bisect_right
from collections.abc import Container, Iterable, Iterator, Mapping
from hashlib import blake2b
from operator import attrgetter

import msgspec

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer, Disk, DiskFile
from quorate.records.batch import BatchHeader, TimestampType, read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_keys, iterate_records
from quorate.storage.batch_scan import scan_batches
from quorate.storage.config import LogConfig
from quorate.storage.file_names import CLEANED
from quorate.storage.reading import require_checked
from quorate.storage.segment import LoggedBatch, Segment
from quorate.storage.segment_checksums import SummedLog, write_checksums
from quorate.storage.state import LogState, changes_log
from quorate.storage.swap import swap_in
from quorate.storage.transactions import TransactionIndexEntry

_MAX_KEYS = 1_000_000  # About 150 bytes each; a round stops after so many.
_WRITE_BYTES = 1 << 20
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


class CleaningSource(msgspec.Struct, frozen=True):
    segment: Segment
    end_offset: Offset
    file: DiskFile
    size_bytes: int
    index_bytes: int
    has_aborted: bool

    @classmethod
    def of(cls, segment: Segment, end_offset: Offset) -> "CleaningSource":
        index_bytes = max(segment.offset_index.size_bytes, segment.time_index.size_bytes)
        has_aborted = any(True for _ in segment.transaction_index)
        return cls(segment, end_offset, segment.file, segment.size_bytes, index_bytes, has_aborted)


class CleaningPlan(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    config: LogConfig
    now_ms: int
    truncations: int  # Of the log so far: if there are more at the end, the work is discarded.
    first_dirty_offset: Offset
    sources: list[CleaningSource]
    last_offsets_of_producers: frozenset[Offset]
    marker_epochs_of_producers: dict[ProducerId, ProducerEpoch]
    #: All that may have records in the sources. Below the last stable offset none will be added.
    aborted: list[TransactionIndexEntry]


class CleanedGroup(msgspec.Struct, frozen=True):
    """One new segment, and the segments that it replaces."""

    segment: Segment
    sources: list[CleaningSource]


class CleanedLog(msgspec.Struct, frozen=True, kw_only=True):
    plan: CleaningPlan
    groups: list[CleanedGroup]
    cleaned_up_to: Offset


def plan_cleaning(state: LogState, now_ms: int, *, up_to_offset: Offset | None = None) -> CleaningPlan | None:
    """What to compact now, below ``up_to_offset`` (a high watermark), for ``clean`` in a worker thread.

    None where there is too little to gain.
    """
    state.require_usable()
    if not state.config.compacts:
        return None
    limit = state.log_end_offset if up_to_offset is None else up_to_offset
    cleanable = list(_cleanable(state, now_ms, limit))
    for segment, _ in cleanable:
        require_checked(segment)
    first_dirty = max(state.cleaned_up_to, state.log_start_offset)
    dirty = [segment for segment, end in cleanable if end > first_dirty]
    size_bytes = sum(segment.size_bytes for segment, _ in cleanable)
    if not dirty or not _is_worth_it(dirty, size_bytes, state.config, now_ms):
        return None
    end_offset = cleanable[-1][1]
    return CleaningPlan(
        directory=state.directory,
        config=state.config,
        now_ms=now_ms,
        truncations=state.truncations,
        first_dirty_offset=first_dirty,
        sources=[CleaningSource.of(segment, end) for segment, end in cleanable],
        last_offsets_of_producers=frozenset(
            offset for _, entry in state.producers if (offset := entry.last_offset) is not None
        ),
        marker_epochs_of_producers={
            producer_id: entry.epoch for producer_id, entry in state.producers if entry.last_offset is None
        },
        aborted=[
            aborted
            for segment in state.segments
            for aborted in segment.transaction_index
            if aborted.first_offset < end_offset
        ],
    )


def clean(disk: Disk, plan: CleaningPlan, *, max_keys: int = _MAX_KEYS) -> CleanedLog:
    """Write the compacted segments beside the log, synced. ``CorruptBatch`` if a source is damaged: nothing is lost."""
    latest = _latest_offsets(plan, max_keys)
    last_of_round = Offset(plan.sources[-1].end_offset - 1)
    rules = CompactionRules(
        latest=latest,
        now_ms=plan.now_ms,
        delete_retention_ms=plan.config.delete_retention_ms,
        kept_last_offsets=plan.last_offsets_of_producers | {last_of_round},
        kept_marker_epochs=plan.marker_epochs_of_producers,
    )
    reached = [source for source in plan.sources if source.segment.base_offset < latest.end]
    transactions = CleanedTransactions(plan.aborted)
    groups = [_clean_group(disk, plan, sources, rules, transactions) for sources in _grouped(reached, plan.config)]
    return CleanedLog(plan=plan, groups=[group for group in groups if group], cleaned_up_to=latest.end)


@changes_log
def install(state: LogState, cleaned: CleanedLog) -> bool:
    """Put the compacted segments in place; False if the log was truncated meanwhile, or has lost some of them."""
    current = set(map(id, state.segments))
    is_void = state.truncations != cleaned.plan.truncations
    complete = not is_void
    for group in cleaned.groups:
        if is_void or not all(id(source.segment) in current for source in group.sources):
            group.segment.remove()
            complete = False
        else:
            swap_in(state, group.segment, [source.segment for source in group.sources])
    if complete:
        state.store_cleaned_up_to(cleaned.cleaned_up_to)
    return complete


def _cleanable(state: LogState, now_ms: int, up_to_offset: Offset) -> Iterator[tuple[Segment, Offset]]:
    """Segments from the first on, with their ends, that are durable, stable and older than the compaction lag."""
    first_unstable = state.producers.open_transactions.first_unstable_offset
    limit = min(up_to_offset, state.durability.recovery_point)
    if first_unstable is not None:
        limit = min(limit, first_unstable)
    newest_ms = now_ms - state.config.min_compaction_lag_ms
    for segment, end in state.segments.with_ends(state.log_end_offset)[:-1]:
        if (
            segment.damage
            or end > limit
            or (state.config.min_compaction_lag_ms > 0 and segment.max_timestamp().timestamp_ms > newest_ms)
        ):
            return
        yield segment, end


def _is_worth_it(dirty: list[Segment], cleanable_bytes: int, config: LogConfig, now_ms: int) -> bool:
    dirty_bytes = sum(segment.size_bytes for segment in dirty)
    if dirty_bytes == 0:
        return False
    first_ms = dirty[0].first_timestamp()
    if 0 <= first_ms < now_ms - config.max_compaction_lag_ms:
        return True
    return dirty_bytes > config.min_cleanable_dirty_ratio * cleanable_bytes


def _latest_offsets(plan: CleaningPlan, max_keys: int) -> LatestOffsets:
    latest = LatestOffsets(plan.first_dirty_offset)
    transactions = CleanedTransactions(plan.aborted)
    for source in plan.sources:
        if source.end_offset <= plan.first_dirty_offset:
            continue
        for _, header, batch in scan_batches(source.file, 0, source.size_bytes):
            if len(latest) >= max_keys:
                return latest
            if header.last_offset < plan.first_dirty_offset:
                continue
            if header.is_control or transactions.meet(header):
                latest.end = header.next_offset
            else:
                latest.add(batch, header)
        latest.end = source.end_offset
    return latest


def _grouped(sources: list[CleaningSource], config: LogConfig) -> Iterator[list[CleaningSource]]:
    """Neighbours that fit into one segment together, so that compaction does not leave ever smaller ones."""
    group: list[CleaningSource] = []
    for source in sources:
        if group and not _fits(group, source, config):
            yield group
            group = []
        group.append(source)
    if group:
        yield group


def _fits(group: list[CleaningSource], source: CleaningSource, config: LogConfig) -> bool:
    together = [*group, source]
    return (
        sum(each.size_bytes for each in together) <= config.segment_bytes
        and sum(each.index_bytes for each in together) <= config.segment_index_bytes
        and group[0].segment.holds(Offset(source.end_offset - 1))
    )


def _clean_group(
    disk: Disk,
    plan: CleaningPlan,
    sources: list[CleaningSource],
    rules: CompactionRules,
    transactions: CleanedTransactions,
) -> CleanedGroup | None:
    """None where there is nothing to gain."""
    base_offset = sources[0].segment.base_offset
    segment = Segment(disk, plan.directory, base_offset, is_new=True, suffix=CLEANED)
    segment.remove()  # An earlier round may have left it.
    segment.create()
    changed = len(sources) > 1
    pending: list[Buffer] = []
    for source in sources:
        for _, header, batch in scan_batches(source.file, 0, source.size_bytes):
            kept = _compact(segment, batch, header, rules, transactions)
            changed = changed or kept is not batch
            if kept:
                _add(segment, pending, kept, plan.config.index_interval_bytes)
    if not changed:
        segment.remove()
        return None
    segment.file.append(pending)
    if any(source.has_aborted for source in sources):
        segment.transaction_index.replace()
    segment.seal()
    for file in segment.files():
        file.sync()
    write_checksums(
        disk,
        SummedLog(
            directory=plan.directory,
            base_offset=base_offset,
            size_bytes=segment.size_bytes,
            end_offset=sources[-1].end_offset,
            suffix=CLEANED,
            transactions_suffix=CLEANED,
        ),
    )
    return CleanedGroup(segment, sources)


def _compact(
    segment: Segment,
    batch: memoryview,
    header: BatchHeader,
    rules: CompactionRules,
    transactions: CleanedTransactions,
) -> memoryview | bytes:
    """The part of the batch that is kept. An aborted transaction that it ends goes into the new segment's index."""
    if not header.is_control:
        return (compact_aborted if transactions.meet(header) else compact_batch)(batch, header, rules)
    if transactions.meet_marker(header):
        return compact_marker(batch, header, rules)
    aborted = transactions.ended_at(header)
    if aborted is not None:
        segment.transaction_index.add(aborted)
    return batch


def _add(segment: Segment, pending: list[Buffer], batch: memoryview | bytes, index_interval_bytes: int) -> None:
    segment.note(LoggedBatch.of(read_header(batch)), segment.size_bytes, index_interval_bytes)
    pending.append(bytes(batch))
    if sum(map(len, pending)) >= _WRITE_BYTES:
        segment.file.append(pending)
        pending.clear()
