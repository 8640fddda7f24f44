"""What a contender of the restore is asked to do."""

from typing import Final

from benchmarks.contenders.jobs import Job

TARGET_PREFIX: Final = "target-"


class RestoreJob(Job, frozen=True, kw_only=True):
    """``topics`` are those at the source, ``folder`` has what the contender reads, in the form that it needs."""

    producer_compression: str

    @property
    def target_topics(self) -> tuple[str, ...]:
        return tuple(map(target_topic, self.topics))


def target_topic(topic: str) -> str:
    """What a topic of the source is called at the target."""
    return f"{TARGET_PREFIX}{topic}"
