"""What a contender of the data source's benchmark is asked to do."""

from benchmarks.contenders.jobs import Job


class ReadJob(Job, frozen=True, kw_only=True):
    """``tasks`` and the values' size are for the limit, which reads no topic."""

    tasks: int
    value_size_bytes: int
