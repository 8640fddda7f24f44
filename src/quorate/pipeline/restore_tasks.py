"""Packs the partitions of a restore into tasks. Pure."""

from collections.abc import Callable, Iterable
from typing import TypeVar

Item = TypeVar("Item")

_TASK_BYTES = 32 * 1024 * 1024
_ITEMS_PER_TASK = 64


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
