"""Which batches belong to which range of offsets.

Ranges are cut by estimated bytes, so a cut may fall inside a batch, which a broker gives out whole to both sides. A
batch belongs to the range that its base offset lies in, and so to exactly one. Two exceptions at the outer ends: the
first range of a run takes the batch that its start lies inside of, since nobody else does, and the last range takes no
batch that reaches beyond the captured end.
"""

from enum import Enum

import msgspec

from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName


class OffsetRange(msgspec.Struct, frozen=True, kw_only=True):
    """What one task copies of a partition: from ``start_offset`` up to, and without, ``end_offset``."""

    topic: TopicName
    topic_id: TopicId
    generation: int
    partition: PartitionIndex
    leader: NodeId
    leader_epoch: LeaderEpoch
    start_offset: Offset
    end_offset: Offset
    is_first: bool
    is_last: bool
    estimated_bytes: int

    @property
    def key(self) -> "RangeKey":
        return RangeKey(self.topic, self.topic_id, self.partition, self.start_offset)


class RangeKey(msgspec.Struct, frozen=True, array_like=True):
    """Tells a range from all others of its plan."""

    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset


class Placement(Enum):
    BEFORE = "before"  # Another range's: pass it over.
    INSIDE = "inside"
    BEYOND = "beyond"  # This range is done.


def place(offset_range: OffsetRange, base_offset: Offset, last_offset: Offset) -> Placement:
    """Where a batch stands to the range."""
    if last_offset < offset_range.start_offset:
        return Placement.BEFORE
    if base_offset < offset_range.start_offset:
        return Placement.INSIDE if offset_range.is_first else Placement.BEFORE
    if base_offset >= offset_range.end_offset:
        return Placement.BEYOND
    if offset_range.is_last and last_offset >= offset_range.end_offset:
        return Placement.BEYOND
    return Placement.INSIDE


def estimate_bytes(
    span: int, *, local_bytes: int | None, local_start: int, local_end: int, assumed_bytes_per_offset: int
) -> int:
    """What so many offsets may hold: as much as those on the leader's disk, bytes spread evenly over offsets.

    The assumption stands in where the leader does not tell, or has all of the log in tiered storage.
    """
    if local_bytes is None or local_start >= local_end:
        return span * assumed_bytes_per_offset
    return local_bytes * span // (local_end - local_start)
