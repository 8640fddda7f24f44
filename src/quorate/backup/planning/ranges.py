"""Ranges of offsets: which batches belong to one, how a partition is cut into them, how tasks are filled with them.

Ranges are cut by estimated bytes, so a cut may fall inside a batch, which a broker gives out whole to both sides. A
batch belongs to the range that its base offset lies in, and so to exactly one. Two exceptions at the outer ends: the
first range of a run takes the batch that its start lies inside of, since nobody else does, and the last range takes no
batch that reaches beyond the captured end.

A large range is a task of its own. Small ones of the same leader share a task, so that thousands of idle partitions
cost a few tasks, and a task mostly talks to one broker.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import pairwise
from typing import TypeVar

import msgspec

from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName

DEFAULT_RANGES_PER_TASK = 512

Item = TypeVar("Item")


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
    """How many bytes so many offsets may hold: the bytes on the leader's disk, spread evenly over its offsets.

    The assumption stands in where the leader does not tell, or has all of the log in tiered storage.
    """
    if local_bytes is None or local_start >= local_end:
        return span * assumed_bytes_per_offset
    return local_bytes * span // (local_end - local_start)


def cut(whole: OffsetRange, count: int) -> list[OffsetRange]:
    """Ranges of about equal length; no more of them than there are offsets."""
    spans = even_spans(whole.start_offset, whole.end_offset, count)
    return [
        msgspec.structs.replace(
            whole,
            start_offset=start,
            end_offset=end,
            is_first=start == whole.start_offset,
            is_last=end == whole.end_offset,
            estimated_bytes=whole.estimated_bytes // len(spans),
        )
        for start, end in spans
    ]


def even_spans(start: Offset, end: Offset, count: int) -> list[tuple[Offset, Offset]]:
    """The offsets from ``start`` up to ``end``, which is above it, cut into ``count`` pieces if there are as many."""
    length = end - start
    count = min(max(1, count), length)
    cuts = [Offset(start + length * index // count) for index in range(count + 1)]
    return list(pairwise(cuts))


class Task(msgspec.Struct, frozen=True, kw_only=True):
    ranges: list[OffsetRange]

    @property
    def estimated_bytes(self) -> int:
        return sum(each.estimated_bytes for each in self.ranges)


def pack(ranges: Iterable[OffsetRange], *, task_bytes: int, ranges_per_task: int) -> list[Task]:
    """Tasks in the order to start them: the largest first, so that none of them is alone at the end."""
    tasks: list[Task] = []
    small: dict[NodeId, list[OffsetRange]] = {}
    for each in ranges:
        if each.estimated_bytes >= task_bytes:
            tasks.append(Task(ranges=[each]))
        else:
            small.setdefault(each.leader, []).append(each)
    for leader in sorted(small):
        groups = fill(small[leader], lambda each: each.estimated_bytes, max_bytes=task_bytes, max_items=ranges_per_task)
        tasks += [Task(ranges=group) for group in groups]
    return sorted(tasks, key=lambda task: -task.estimated_bytes)


def fill(
    items: Iterable[Item], size_of: Callable[[Item], int], *, max_bytes: int, max_items: int
) -> Iterator[list[Item]]:
    """Neighbours share a group until it is full."""
    group: list[Item] = []
    group_bytes = 0
    for item in items:
        size_bytes = size_of(item)
        if group and (group_bytes + size_bytes > max_bytes or len(group) == max_items):
            yield group
            group, group_bytes = [], 0
        group.append(item)
        group_bytes += size_bytes
    if group:
        yield group
