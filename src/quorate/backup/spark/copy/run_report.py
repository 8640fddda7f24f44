"""What a run did, summed up for people and machines."""

from collections.abc import Sequence

import msgspec

from quorate.backup.manifests.manifest import Failure, Gap, Manifest, TopicEntry
from quorate.backup.planning.planner import Plan
from quorate.backup.spark.copy.copy_task import TaskReport
from quorate.kernel.ids import PartitionIndex, TopicName


class FoundGap(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName
    partition: PartitionIndex
    gap: Gap


class RecreatedTopic(msgspec.Struct, frozen=True, kw_only=True):
    """A topic that was deleted and made again: what came into the old one after its last run is in no backup."""

    topic: TopicName
    generation: int  # Of the new one.


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    backup_id: str
    manifest_number: int
    state: str  # complete, or partial where something that was asked for is missing.
    topics: int
    partitions: int
    tasks: int
    record_count: int  # Of data: markers of transactions are copied and not counted.
    batch_bytes: int  # As the brokers sent them.
    stored_bytes: int
    gaps: list[FoundGap]  # Those of this run in which records are missing.
    recreated: list[RecreatedTopic]  # Found by this run.
    truncations: int
    failures: list[Failure]
    leaders_followed: int
    peak_task_memory_bytes: int
    seconds: float

    @property
    def has_losses(self) -> bool:
        """Whether records are, or may be, in no backup: this run came too late for them."""
        return bool(self.gaps or self.recreated)


def run_report(
    plan: Plan, manifest: Manifest, reports: Sequence[TaskReport], *, leaders_followed: int, seconds: float
) -> RunReport:
    results = [result for report in reports for result in report.results]
    return RunReport(
        backup_id=manifest.backup_id,
        manifest_number=manifest.number,
        state=state_of(manifest),
        topics=len(plan.topics),
        partitions=sum(len(topic.partitions) for topic in plan.topics),
        tasks=len(plan.tasks),
        record_count=sum(report.record_count for report in reports),
        batch_bytes=sum(report.batch_bytes for report in reports),
        stored_bytes=sum(segment.size_bytes for result in results for segment in result.segments),
        gaps=_gaps(plan, reports),
        recreated=[
            RecreatedTopic(topic=topic.name, generation=topic.generation) for topic in plan.topics if topic.is_recreated
        ],
        truncations=sum(
            partition.superseded_from_offset is not None for topic in plan.topics for partition in topic.partitions
        ),
        failures=manifest.failures,
        leaders_followed=leaders_followed + sum(report.leaders_followed for report in reports),
        peak_task_memory_bytes=max((report.peak_memory_bytes for report in reports), default=0),
        seconds=seconds,
    )


def state_of(manifest: Manifest) -> str:
    return "complete" if manifest.is_complete else "partial"


def topic_records(topic: TopicEntry) -> int:
    """Records that a reader of the backup sees: no markers of transactions, nothing that a truncation superseded."""
    return sum(segment.live_record_count for partition in topic.partitions for segment in partition.segments)


def is_count_exact(topic: TopicEntry) -> bool:
    """Whether ``topic_records`` is more than a bound: a truncation cut a segment, and only reading it would tell."""
    return all(segment.count_is_exact for partition in topic.partitions for segment in partition.segments)


def topic_bytes(topic: TopicEntry) -> int:
    return sum(segment.size_bytes for partition in topic.partitions for segment in partition.segments)


def losses(topic: TopicEntry) -> list[FoundGap]:
    return [
        FoundGap(topic=topic.name, partition=partition.partition, gap=gap)
        for partition in topic.partitions
        for gap in partition.gaps
        if gap.reason.is_loss
    ]


def _gaps(plan: Plan, reports: Sequence[TaskReport]) -> list[FoundGap]:
    before = [
        FoundGap(topic=topic.name, partition=partition.partition, gap=partition.gap)
        for topic in plan.topics
        for partition in topic.partitions
        if partition.gap is not None
    ]
    during = [
        FoundGap(topic=result.key.topic, partition=result.key.partition, gap=gap)
        for report in reports
        for result in report.results
        for gap in result.gaps
        if gap.reason.is_loss
    ]
    return before + during
