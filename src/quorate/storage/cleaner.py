"""Compacting a log in three steps: plan it, do the work aside, put the result in place.

``plan_cleaning`` and ``install`` belong to the loop's thread, ``clean`` to a worker's: it reads only files that no
longer change, through handles that the plan holds, and writes only files that the log does not know yet. If
the log has changed meanwhile, ``install`` puts in place what still fits and throws the rest away.
"""

from collections.abc import Iterator

import msgspec

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer, Disk, DiskFile
from quorate.records.batch import BatchHeader, read_header
from quorate.storage.batch_scan import scan_batches
from quorate.storage.compaction import (
    CleanedTransactions,
    CompactionRules,
    LatestOffsets,
    compact_aborted,
    compact_batch,
    compact_marker,
)
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
