"""What a contender of the restore is asked to do."""

from benchmarks.contenders.jobs import Job


class RestoreJob(Job, frozen=True, kw_only=True):
    """``topics`` has the one at the source, ``folder`` what the contender reads, in the form that it needs."""

    target_topic: str
    producer_compression: str

    @property
    def records(self) -> int:
        return sum(self.end_offsets)
