"""Stretches: neighbouring batches of a region that go into a segment as one, since nothing happens between them. Pure.

What may happen: a frame or segment is full, an epoch begins, offsets are out of order, a range ends, the format is an
old one, or only the records tell a batch's times. The batch at which it does is taken alone, by its summary.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from quorate.backup.segments.batch_summary import BatchSummary, summarize
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.kernel.native import native
from quorate.records.batch import (
    DELETE_HORIZON_MASK,
    HEADER_SIZE_BYTES,
    MAGIC,
    MAGIC_OFFSET,
    TIMESTAMP_TYPE_MASK,
    read_header,
)
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP

_MAX_OFFSET: Final = 2**63 - 2  # The one behind it is the last that has 64 bits.


class StretchRules(NamedTuple):
    """What keeps a batch in a stretch that follows another batch."""

    room_bytes: int  # For all of them.
    next_offset: Offset  # None begins before it.
    end_offset: Offset  # All begin before it,
    ends_before: bool  # and where this is true, they end before it, too.
    leader_epoch: LeaderEpoch  # Theirs, unless they have none.
    is_compressed: bool


class Stretch(NamedTuple):
    batch_count: int
    size_bytes: int
    last_offset: Offset
    record_count: int
    control_record_count: int
    min_timestamp: int  # NO_TIMESTAMP where no record has one.
    max_timestamp: int
    largest_batch_bytes: int
    is_plain: bool  # All of them are, and no offset is missing before or between them.

    @property
    def data_record_count(self) -> int:
        return self.record_count - self.control_record_count


NO_STRETCH: Final = Stretch(0, 0, Offset(0), 0, 0, NO_TIMESTAMP, NO_TIMESTAMP, 0, is_plain=True)


def follow(data: memoryview, position: int, rules: StretchRules) -> Stretch:
    """The batches from a position on that keep to the rules; maybe none. CRCs are not looked at."""
    if native is not None:
        return tuple.__new__(Stretch, native.follow(data, position, rules))
    return follow_summaries(data, position, rules)


def follow_summaries(data: memoryview, position: int, rules: StretchRules) -> Stretch:
    """The twin of ``follow``."""
    found: list[BatchSummary] = []
    room_bytes, next_offset = rules.room_bytes, rules.next_offset
    for batch in _batches_of_current_format(data, position):
        if batch.size_bytes > room_bytes or not next_offset <= batch.base_offset <= batch.last_offset <= _MAX_OFFSET:
            break
        if not _keeps_to(rules, batch):
            break
        found.append(batch)
        room_bytes -= batch.size_bytes
        next_offset = batch.next_offset
    return _sum_up(found, rules.next_offset)


def _batches_of_current_format(data: memoryview, position: int) -> Iterator[BatchSummary]:
    while len(data) - position >= HEADER_SIZE_BYTES and data[position + MAGIC_OFFSET] == MAGIC:
        try:
            header = read_header(data, position)
        except CorruptBatch:
            return
        time_kind = header.attributes & (TIMESTAMP_TYPE_MASK | DELETE_HORIZON_MASK)
        hides_times = time_kind == DELETE_HORIZON_MASK and header.record_count != 0
        if hides_times or position + header.size_bytes > len(data):
            return
        yield summarize(data, position, header)
        position += header.size_bytes


def _keeps_to(rules: StretchRules, batch: BatchSummary) -> bool:
    if batch.is_compressed != rules.is_compressed or 0 <= batch.leader_epoch != rules.leader_epoch:
        return False
    return batch.base_offset < rules.end_offset and not (rules.ends_before and batch.last_offset >= rules.end_offset)


def _sum_up(batches: Sequence[BatchSummary], next_offset: Offset) -> Stretch:
    is_plain = True
    for batch in batches:
        is_plain = is_plain and batch.is_plain and batch.base_offset == next_offset
        next_offset = batch.next_offset
    return Stretch(
        batch_count=len(batches),
        size_bytes=sum(batch.size_bytes for batch in batches),
        last_offset=batches[-1].last_offset if batches else Offset(0),
        record_count=sum(batch.record_count for batch in batches),
        control_record_count=sum(batch.record_count for batch in batches if batch.is_control),
        min_timestamp=min(
            (batch.min_timestamp for batch in batches if batch.min_timestamp != NO_TIMESTAMP), default=NO_TIMESTAMP
        ),
        max_timestamp=max((batch.max_timestamp for batch in batches), default=NO_TIMESTAMP),
        largest_batch_bytes=max((batch.size_bytes for batch in batches), default=0),
        is_plain=is_plain,
    )
