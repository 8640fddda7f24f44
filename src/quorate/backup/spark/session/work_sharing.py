"""How tasks share the work of a job: packed by bytes, worked on in lanes, each with its share of the rate."""

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from quorate.backup.planning.ranges import fill

Item = TypeVar("Item")

_TASK_BYTES = 32 * 1024 * 1024
_ITEMS_PER_TASK = 64
#: Few batches of one partition may be in flight, and what partitions of one leader have ready goes into one request.
_LANES_PER_TASK = 8
_BURST_SECONDS = 0.5


def pack_by_bytes(
    items: Iterable[Item],
    size_of: Callable[[Item], int],
    *,
    max_bytes: int = _TASK_BYTES,
    max_items: int = _ITEMS_PER_TASK,
) -> list[list[Item]]:
    """A large item is a task of its own and starts first; small ones share one."""
    largest_first = sorted(items, key=lambda item: -size_of(item))
    return list(fill(largest_first, size_of, max_bytes=max_bytes, max_items=max_items))


def group_into_lanes(
    packs: Sequence[list[Item]], size_of: Callable[[Item], int], *, slots: int
) -> list[list[list[Item]]]:
    """Tasks of several packs each, which one task works on at the same time; every slot gets as many tasks.

    No slot stays empty, and the largest packs are spread over the tasks.
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


def share_of_limit(bytes_per_second: float | None, *, tasks: int, slots: int) -> float | None:
    """What one task may have so that all that run at once keep to the limit. None: as much as it can get.

    Where there are fewer tasks than slots, none of the limit is set aside for tasks that do not exist.
    """
    return None if bytes_per_second is None else bytes_per_second / max(1, min(tasks, slots))


class RateLimit:
    """``take`` after each piece of work; it sleeps as long as the pieces so far were too fast.

    Time that was not used counts for half a second at most, so that a pause is not followed by a burst.
    """

    def __init__(
        self, bytes_per_second: float | None, *, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self._bytes_per_second = bytes_per_second
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def take(self, size_bytes: int) -> None:
        if self._bytes_per_second is None:
            return
        now = self._now()
        self._free_at = max(self._free_at, now - _BURST_SECONDS) + size_bytes / self._bytes_per_second
        if self._free_at > now:
            self._sleep(self._free_at - now)
