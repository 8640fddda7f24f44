"""Appending batches: what a leader checks and fills in, what a follower takes as it is, and when a segment is full.

One append is all or nothing. The cost is per batch, never per record.
"""

from collections.abc import Sequence

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerId
from quorate.kernel.ports import Buffer, is_out_of_descriptors
from quorate.records.batch import (
    CONTROL_MASK,
    LOG_OVERHEAD_BYTES,
    BatchHeader,
    TimestampType,
    check_crc,
    patch_log_append_time,
    patch_offset_and_epoch,
    read_batches,
    read_header,
)
from quorate.records.control import TransactionEnd, build_end_transaction_marker, marker_of_batch
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP
from quorate.storage.config import LogConfig
from quorate.storage.durability import SealedSegment
from quorate.storage.producer_snapshots import encode_snapshot
from quorate.storage.producer_state import SequencedBatch
from quorate.storage.segment import LoggedBatch, Segment
from quorate.storage.segment_recovery import seal
from quorate.storage.state import LogState
from quorate.storage.timestamps import check_timestamps


class AppendInfo(msgspec.Struct, frozen=True):
    base_offset: Offset
    last_offset: Offset
    log_append_time_ms: int  # -1 where records keep the time of their creation.
    log_start_offset: Offset
    duplicate: bool = False


def append_as_leader(
    state: LogState,
    batches: memoryview,
    headers: Sequence[BatchHeader],
    *,
    leader_epoch: LeaderEpoch,
    now_ms: int,
    keep_offsets: bool = False,
) -> AppendInfo:
    """Give the batches their offsets, in place, and write them; ``headers`` are theirs, their CRCs checked.

    With ``keep_offsets`` they have them, and must follow the end of the log. Raises MESSAGE_TOO_LARGE,
    INVALID_TIMESTAMP, and what ``ProducerStates.check`` finds; then nothing has changed.
    """
    if state.failure is not None:
        state.require_usable()
    if not headers:
        raise CorruptBatch("nothing to append")
    original = state.producers.check(headers)
    if original is not None:
        return _duplicate(state, original)
    if keep_offsets:
        _check_follows(state, headers)
    config = state.config
    if len(batches) > config.max_message_bytes or len(batches) > config.segment_bytes:
        _check_sizes(config, headers, len(batches))
    stamps = config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    if not stamps:
        check_timestamps(headers, config, now_ms)
    placed = []
    position, base_offset = 0, state.log_end_offset
    for header in headers:
        patch_offset_and_epoch(batches, position, base_offset, leader_epoch)
        if stamps:
            patch_log_append_time(batches, position, now_ms)
        last_offset = Offset(base_offset + header.last_offset_delta)
        timestamp_ms = now_ms if stamps else header.max_timestamp
        size_bytes = header.batch_length + LOG_OVERHEAD_BYTES
        placed.append(LoggedBatch(base_offset, last_offset, timestamp_ms, size_bytes, leader_epoch))
        position += size_bytes
        base_offset = Offset(last_offset + 1)
    _write(state, batches, placed, headers, now_ms)
    return AppendInfo(
        placed[0].base_offset, placed[-1].last_offset, now_ms if stamps else NO_TIMESTAMP, state.log_start_offset
    )


def append_marker(
    state: LogState,
    end: TransactionEnd,
    *,
    leader_epoch: LeaderEpoch,
    now_ms: int,
) -> AppendInfo:
    """Write the end of a producer's transaction, as leader.

    Raises INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED where the marker comes too late.
    """
    state.require_usable()
    state.producers.check_marker(end)
    batch = build_end_transaction_marker(
        end.marker, producer_id=end.producer_id, producer_epoch=end.producer_epoch, timestamp_ms=now_ms
    )
    return append_as_leader(
        state,
        memoryview(bytearray(batch)),
        [read_header(batch)],
        leader_epoch=leader_epoch,
        now_ms=now_ms,
    )


def append_as_follower(state: LogState, batches: Buffer) -> AppendInfo:
    """Write batches as their leader has them. Checks the CRCs, and that the offsets follow."""
    state.require_usable()
    found = read_batches(batches)
    if not found:
        raise CorruptBatch("nothing to append")
    next_offset = state.log_end_offset
    placed = []
    for position, header in found:
        check_crc(batches, position, header)
        if header.base_offset < next_offset or header.last_offset_delta < 0:
            raise CorruptBatch(f"batch of offset {header.base_offset} where {next_offset} is next")
        placed.append(LoggedBatch.of(header))
        next_offset = header.next_offset
    headers = [header for _, header in found]
    _write(state, batches, placed, headers, headers[0].max_timestamp)
    return AppendInfo(placed[0].base_offset, placed[-1].last_offset, NO_TIMESTAMP, state.log_start_offset)


def roll(state: LogState) -> None:
    """Close the active segment and start the next one at the end of the log."""
    old = state.segments.active
    try:
        if not state.log_start_is_stored:
            # Without it recovery could not tell that the first segment is lost when only the second has survived.
            state.store_log_start(state.log_start_offset)
        seal(old, state.log_end_offset, state.config.index_interval_bytes)
    except OSError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot roll {old.path}: {error}") from error
    snapshot = encode_snapshot(state.producers)
    state.durability.note_sealed(
        SealedSegment(end_offset=state.log_end_offset, files=old.files(), producer_snapshot=snapshot)
    )
    old.release()
    # The indexes were created just now; their names, too, must be durable before the recovery point passes them.
    state.durability.note_file_created()
    state.segments.add(Segment(state.disk, state.directory, state.log_end_offset, is_new=True))
    state.recent.forget(state.log_end_offset)


def _duplicate(state: LogState, original: SequencedBatch) -> AppendInfo:
    stamps = state.config.message_timestamp_type is TimestampType.LOG_APPEND_TIME
    log_append_time_ms = original.timestamp_ms if stamps else NO_TIMESTAMP
    return AppendInfo(
        original.base_offset, original.last_offset, log_append_time_ms, state.log_start_offset, duplicate=True
    )


def _check_follows(state: LogState, headers: Sequence[BatchHeader]) -> None:
    """Whoever knows the log's end may append, and nobody else: that holds without any memory of producers."""
    next_offset = state.log_end_offset
    for header in headers:
        if header.base_offset != next_offset:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"a batch for offset {header.base_offset}, where {next_offset} is next",
            )
        next_offset = header.next_offset


def _check_sizes(config: LogConfig, headers: Sequence[BatchHeader], size_bytes: int) -> None:
    limit = config.max_message_bytes
    for header in headers:
        if header.size_bytes > limit:
            raise KafkaError(
                ErrorCode.MESSAGE_TOO_LARGE, f"a batch of {header.size_bytes} bytes, where {limit} are allowed"
            )
    if size_bytes > config.segment_bytes:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"{size_bytes} bytes of batches, where a segment takes {config.segment_bytes}",
        )


def _write(
    state: LogState, batches: Buffer, placed: list[LoggedBatch], headers: Sequence[BatchHeader], now_ms: int
) -> None:
    segment = state.segments.active
    if segment.size_bytes and _is_full(state, segment, placed, len(batches), now_ms):
        roll(state)
        segment = state.segments.active
    position = start = segment.size_bytes
    _write_to(state, segment, batches)
    recent, producers, epochs = state.recent, state.producers, state.epoch_cache
    for batch, header in zip(placed, headers, strict=True):
        recent.add(batch.last_offset, position)
        segment.note(batch, position, state.config.index_interval_bytes)
        if header.producer_id >= 0:
            producers.advance(header, batch.base_offset, batch.max_timestamp)
            if header.attributes & CONTROL_MASK:
                _note_marker(state, batches, position - start, header.producer_id, batch.base_offset)
        position += batch.size_bytes
        if batch.leader_epoch != epochs.latest_epoch:
            _note_epoch(state, batch)
    state.log_end_offset = Offset(placed[-1].last_offset + 1)


def _note_marker(state: LogState, batches: Buffer, position: int, producer_id: ProducerId, offset: Offset) -> None:
    marker = marker_of_batch(batches, position)
    if marker is None:
        return
    aborted = state.producers.end_transaction(producer_id, marker, offset)
    if aborted is not None:
        state.segments.active.transaction_index.add(aborted)


def _note_epoch(state: LogState, batch: LoggedBatch) -> None:
    """Epochs that begin at the end of the log have no records: this replica led in them and did not write.

    A follower may get older records there, which must not be taken for some of such an epoch.
    """
    epochs = state.epoch_cache
    changed = batch.leader_epoch < epochs.latest_epoch and epochs.truncate_from_end(batch.base_offset)
    if batch.leader_epoch > epochs.latest_epoch:
        changed = epochs.assign(batch.leader_epoch, batch.base_offset) or changed
    if changed:
        state.durability.note_epochs(epochs.entries())


def _write_to(state: LogState, segment: Segment, batches: Buffer) -> None:
    try:
        if not segment.size_bytes and not segment.is_created:
            segment.create()
            state.durability.note_file_created()
        segment.file.append([batches])
    except OSError as error:
        if not is_out_of_descriptors(error):  # Otherwise the file was not open, and nothing is written.
            _take_back(state, segment)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot write to {segment.path}: {error}") from error


def _take_back(state: LogState, segment: Segment) -> None:
    """After a failed write (the disk is full): what was written of it must not come back later."""
    if not segment.is_created:
        return
    try:
        segment.cut(segment.size_bytes)
    except OSError as error:
        raise state.fail(error) from error


def _is_full(state: LogState, segment: Segment, placed: list[LoggedBatch], size_bytes: int, now_ms: int) -> bool:
    config = state.config
    return (
        segment.size_bytes + size_bytes > config.segment_bytes
        or _age_ms(segment, placed, now_ms) > config.max_segment_ms
        or segment.offset_index.is_full(config.segment_index_bytes)
        or segment.time_index.is_full(config.segment_index_bytes)
        or not segment.holds(placed[-1].last_offset)
    )


def _age_ms(segment: Segment, placed: list[LoggedBatch], now_ms: int) -> int:
    """By the records' own time, so that old data that is copied in rolls as it did at its source."""
    first = segment.first_timestamp()
    if first < 0:
        return 0
    newest = placed[0].max_timestamp if len(placed) == 1 else max(batch.max_timestamp for batch in placed)
    return (newest if newest >= 0 else now_ms) - first
