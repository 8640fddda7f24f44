"""Time in the log: the timestamps that a leader accepts, and the search for the offset that belongs to a time.

The indexes narrow the search down to a few batches. These have to be read and decompressed, which can take long: a
worker does that with a ``TimeProbe``, one batch after the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.kernel.ports import DiskFile
from quorate.records.batch import BatchHeader
from quorate.records.errors import ExpandsTooFar
from quorate.records.record import NO_TIMESTAMP, first_at_or_after
from quorate.records.validation import opening_limit_bytes
from quorate.storage.config import LogConfig
from quorate.storage.reading import UncheckedSegment
from quorate.storage.segment import Segment
from quorate.storage.state import LogState

#: At most so many headers are read in one step, if no batch among them has to be opened.
_HEADERS_A_STEP = 10_000


class TimestampedOffset(NamedTuple):
    offset: Offset
    timestamp_ms: int
    leader_epoch: LeaderEpoch


def check_timestamps(headers: Sequence[BatchHeader], config: LogConfig, now_ms: int) -> None:
    """Refuse records that claim a time too far from now: one from the future would keep its segment for ever.

    A header has the highest time alone. Single records that are too old are found where batches are opened.
    """
    latest = now_ms + config.message_timestamp_after_max_ms
    earliest = now_ms - config.message_timestamp_before_max_ms
    for header in headers:
        if header.max_timestamp > latest or NO_TIMESTAMP < header.max_timestamp < earliest:
            raise _refused(header.max_timestamp, now_ms)


class TimeProbe:
    """The batches of a segment in which the first record at or after a time may be.

    Holds the file open, so that it stays readable when the segment is removed or replaced.
    """

    def __init__(
        self, file: DiskFile, headers: Iterator[tuple[int, BatchHeader]], timestamp_ms: int, state: LogState
    ) -> None:
        self._file = file
        self._headers = headers
        self._timestamp_ms = timestamp_ms
        self._log_start_offset = state.log_start_offset
        self._max_message_bytes = state.config.max_message_bytes
        self.is_over = False

    def step(self) -> TimestampedOffset | None:
        """Open one batch at most, or pass over a good many; None where the record is not among these.

        To be called in a worker thread until it is found, or the probe is over.
        """
        for _ in range(_HEADERS_A_STEP):
            following = next(self._headers, None)
            if following is None:
                self.is_over = True
                return None
            position, header = following
            if header.max_timestamp >= self._timestamp_ms and header.last_offset >= self._log_start_offset:
                return self._open(position, header)
        return None

    def _open(self, position: int, header: BatchHeader) -> TimestampedOffset | None:
        batch = self._file.read(position, header.size_bytes)
        limit_bytes = opening_limit_bytes(max(self._max_message_bytes, header.size_bytes))
        try:
            found = first_at_or_after(
                batch, self._timestamp_ms, from_offset=self._log_start_offset, limit_bytes=limit_bytes
            )
        except ExpandsTooFar:
            # Too large to open: its first offset is the answer, so that a reader who starts there misses nothing.
            found = Offset(max(header.base_offset, self._log_start_offset)), header.max_timestamp
        return None if found is None else TimestampedOffset(*found, header.partition_leader_epoch)


def probes_for_timestamp(state: LogState, timestamp_ms: int) -> Iterator[TimeProbe | None]:
    """The places to search, in order, for the first record at or after the time.

    One for each segment from the start of the log on; None for a segment without such a record. The log may change
    between two of them.
    """
    segment: Segment | None = state.segments.holding(state.log_start_offset)
    while segment is not None:
        yield _probe(state, segment, timestamp_ms)
        segment = state.segments.next_after(segment)


def highest_timestamps(state: LogState) -> Iterator[int]:
    """Of each segment from the start of the log on; ``NO_TIMESTAMP`` where no record has a time.

    The log may change between two of them.
    """
    segment: Segment | None = state.segments.holding(state.log_start_offset)
    while segment is not None:
        if not segment.indexes_are_checked:
            raise UncheckedSegment(segment)
        yield segment.max_timestamp().timestamp_ms
        segment = state.segments.next_after(segment)


def _probe(state: LogState, segment: Segment, timestamp_ms: int) -> TimeProbe | None:
    if not segment.indexes_are_checked:
        raise UncheckedSegment(segment)
    if segment.max_timestamp().timestamp_ms < timestamp_ms or not segment.size_bytes:
        return None
    if not segment.is_checked:
        raise UncheckedSegment(segment)
    position = max(segment.position_for_time(timestamp_ms), segment.offset_index.position_for(state.log_start_offset))
    return TimeProbe(segment.file, segment.headers_from(position), timestamp_ms, state)


def _refused(timestamp_ms: int, now_ms: int) -> KafkaError:
    return KafkaError(
        ErrorCode.INVALID_TIMESTAMP,
        f"timestamp {timestamp_ms} is too far from the broker's time {now_ms} for this topic",
    )
