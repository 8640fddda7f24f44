"""Time in the log: which timestamps a leader accepts, and which offset belongs to a time."""

from collections.abc import Sequence
from typing import NamedTuple

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.batch import BatchHeader
from quorate.records.record import iterate_records
from quorate.storage.config import LogConfig
from quorate.storage.reading import UncheckedSegment
from quorate.storage.segment import NO_TIMESTAMP, Segment
from quorate.storage.state import LogState


class TimestampedOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def check_timestamps(headers: Sequence[BatchHeader], config: LogConfig, now_ms: int) -> None:
    """Refuse records that claim a time too far from now: one from the future would keep its segment for ever.

    A header tells the highest time alone. Whether single records are too old is for whoever opens the batch to say.
    """
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    for header in headers:
        if header.max_timestamp > latest or NO_TIMESTAMP < header.max_timestamp < earliest:
            raise _refused(header.max_timestamp, now_ms)


def offset_for_timestamp(state: LogState, timestamp_ms: int) -> TimestampedOffset | None:
    """The first record whose timestamp is at or after the given one."""
    for segment in state.segments.starting_from(state.log_start_offset):
        if not segment.indexes_are_checked:
            raise UncheckedSegment(segment)
        if segment.max_timestamp().timestamp_ms >= timestamp_ms and (
            found := _find_in(segment, timestamp_ms, state.log_start_offset)
        ):
            return found
    return None


def offset_of_max_timestamp(state: LogState) -> TimestampedOffset | None:
    """The first record that carries the highest timestamp of the log."""
    segments = state.segments.starting_from(state.log_start_offset)
    for segment in segments:
        if not segment.indexes_are_checked:
            raise UncheckedSegment(segment)
    highest = max(segment.max_timestamp().timestamp_ms for segment in segments)
    return offset_for_timestamp(state, highest) if highest != NO_TIMESTAMP else None


def _find_in(segment: Segment, timestamp_ms: int, log_start_offset: Offset) -> TimestampedOffset | None:
    if not segment.is_checked:
        raise UncheckedSegment(segment)
    start = max(segment.time_index.offset_for(timestamp_ms), log_start_offset)
    for position, header in segment.headers_from(segment.offset_index.position_for(start)):
        if header.max_timestamp < timestamp_ms or header.last_offset < log_start_offset:
            continue
        batch = segment.file.read(position, header.size_bytes)
        for record in iterate_records(batch):
            if record.timestamp >= timestamp_ms and record.offset >= log_start_offset:
                return TimestampedOffset(record.offset, record.timestamp, header.partition_leader_epoch)
    return None


def _refused(timestamp_ms: int, now_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {timestamp_ms} is too far from the broker's time {now_ms} for this topic",
    )
