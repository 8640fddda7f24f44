"""What a contender of the data source's benchmark is asked to do. Pure."""

from typing import Final

from benchmarks.contenders.jobs import Job
from benchmarks.contenders.source import NODE_IDS

#: As ``max_bytes_per_task`` of Quorate's data source is.
_TASK_BYTES: Final = 64 * 1024 * 1024


class ReadJob(Job, frozen=True, kw_only=True):
    """``tasks`` and the values' size are for the limit, which reads no topic."""

    tasks: int
    value_size_bytes: int


def tasks_for(log_bytes: int, partitions: int) -> int:
    """About as many as Quorate makes: large partitions are cut, small ones of a leader share a task."""
    partition_bytes = log_bytes / partitions
    if partition_bytes > _TASK_BYTES / 2:
        return partitions * -(-int(partition_bytes) // _TASK_BYTES)
    return max(len(NODE_IDS), -(-log_bytes // _TASK_BYTES))
