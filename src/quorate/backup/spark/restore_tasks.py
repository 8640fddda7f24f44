"""Packs the partitions of a restore into tasks, and into what a task does at the same time."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")

_TASK_BYTES = 32 * 1024 * 1024
_ITEMS_PER_TASK = 64
#: Few batches of one partition may be in flight, and what partitions of one leader have ready goes into one request.
_LANES_PER_TASK = 8


def pack_by_bytes(items: Iterable[Item], size_of: Callable[[Item], int]) -> list[list[Item]]:
    """A large item is a task of its own and starts first; small ones share one."""
    tasks: list[list[Item]] = []
    open_bytes = 0
    for item in sorted(items, key=lambda item: -size_of(item)):
        if not tasks or open_bytes + size_of(item) > _TASK_BYTES or len(tasks[-1]) == _ITEMS_PER_TASK:
            tasks.append([])
            open_bytes = 0
        tasks[-1].append(item)
        open_bytes += size_of(item)
    return tasks


def group_into_lanes(
    packs: Sequence[list[Item]], size_of: Callable[[Item], int], *, slots: int
) -> list[list[list[Item]]]:
    """Tasks of several packs each, which are worked on at the same time: as many tasks for every slot.

    No slot stays empty for that, and the largest packs are spread over the tasks.
    """
    if not packs:
        return []
    rounds = math.ceil(len(packs) / (_LANES_PER_TASK * slots))
    tasks: list[list[list[Item]]] = [[] for _ in range(min(len(packs), rounds * slots))]
    loads = [(0, number) for number in range(len(tasks))]
    for pack in sorted(packs, key=lambda pack: -sum(map(size_of, pack))):
        load, number = heapq.heappop(loads)
        tasks[number].append(pack)
        if len(tasks[number]) < _LANES_PER_TASK:
            heapq.heappush(loads, (load + sum(map(size_of, pack)), number))
    return [task for task in tasks if task]
