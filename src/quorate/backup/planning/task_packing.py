"""Packs offset ranges into tasks.

A large range is a task of its own. Small ones of the same leader share a task, so that thousands of idle partitions
cost a few tasks, and a task mostly talks to one broker.
"""

from collections.abc import Iterable

import msgspec

from quorate.backup.segments.offset_ranges import OffsetRange
from quorate.kernel.ids import NodeId

DEFAULT_RANGES_PER_TASK = 512


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
        tasks += _fill(small[leader], task_bytes, ranges_per_task)
    return sorted(tasks, key=lambda task: -task.estimated_bytes)


def _fill(ranges: list[OffsetRange], task_bytes: int, ranges_per_task: int) -> list[Task]:
    tasks: list[Task] = []
    open_ranges: list[OffsetRange] = []
    open_bytes = 0
    for each in ranges:
        full = open_bytes + each.estimated_bytes > task_bytes or len(open_ranges) == ranges_per_task
        if open_ranges and full:
            tasks.append(Task(ranges=open_ranges))
            open_ranges, open_bytes = [], 0
        open_ranges.append(each)
        open_bytes += each.estimated_bytes
    if open_ranges:
        tasks.append(Task(ranges=open_ranges))
    return tasks
