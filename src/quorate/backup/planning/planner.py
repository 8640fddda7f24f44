"""Turns a cluster snapshot and the previous manifest into what a run has to copy.

Per partition it decides where to begin: at the log's start, or where the previous manifest ended. It finds what the
cluster deleted in between (a gap), what it truncated (a superseded tail) and which topics were created anew (a new
generation). The ranges of a plan cover exactly the offsets from there to the captured end, each once.
"""

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import Failure, Gap, GapReason, Manifest, Mode, PartitionEntry
from quorate.backup.planning.cluster_snapshot import ClusterSnapshot, PartitionSnapshot, TopicSelection, TopicSnapshot
from quorate.backup.planning.ranges import DEFAULT_RANGES_PER_TASK, OffsetRange, Task, cut, estimate_bytes, pack
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName

MIB = 1024 * 1024


class PlannerSettings(msgspec.Struct, frozen=True, kw_only=True):
    range_bytes: int = 128 * MIB  # Ranges come out between this and twice this; smaller partitions are packed.
    ranges_per_task: int = DEFAULT_RANGES_PER_TASK
    assumed_bytes_per_offset: int = 1024  # Where the cluster does not tell the size of a partition.


class PartitionPlan(msgspec.Struct, frozen=True, kw_only=True):
    partition: PartitionIndex
    start_offset: Offset  # Of what is to be copied.
    end_offset: Offset
    captured_start_offset: Offset
    captured_end_offset: Offset
    captured_leader_epoch: LeaderEpoch
    previous_end_offset: Offset | None  # None: the partition is new to this manifest.
    superseded_from_offset: Offset | None = None
    gap: Gap | None = None  # Lies right before the start.
    ranges: list[OffsetRange] = []


class TopicPlan(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    topic_id: TopicId
    generation: int
    is_internal: bool
    partition_count: int
    configs: dict[str, str]
    partitions: list[PartitionPlan]
    is_recreated: bool = False  # The previous manifest has another topic of that name.


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    previous_number: int | None
    starts_afresh: bool  # The new manifest repeats nothing of the previous one.
    topics: list[TopicPlan]
    tasks: list[Task]
    failures: list[Failure]

    @property
    def estimated_bytes(self) -> int:
        return sum(task.estimated_bytes for task in self.tasks)


def plan_run(
    snapshot: ClusterSnapshot,
    previous: Manifest | None,
    selection: TopicSelection,
    mode: Mode,
    settings: PlannerSettings = PlannerSettings(),  # noqa: B008 (frozen)
) -> Plan:
    starts_afresh = mode is Mode.SNAPSHOT
    topics: list[TopicPlan] = []
    failures = _missing_topics(snapshot, selection)
    for topic in sorted(snapshot.topics, key=lambda topic: topic.name):
        if not selection.selects(topic.name, is_internal=topic.is_internal):
            continue
        if topic.error is not None:
            failures.append(Failure(topic=topic.name, message=topic.error))
            continue
        failures += [
            Failure(topic=topic.name, partition=partition.partition, message=partition.error)
            for partition in topic.partitions
            if partition.error is not None
        ]
        topics.append(_plan_topic(topic, previous, starts_afresh, settings))
    ranges = [each for topic in topics for partition in topic.partitions for each in partition.ranges]
    return Plan(
        cluster_id=snapshot.cluster_id,
        previous_number=None if previous is None else previous.number,
        starts_afresh=starts_afresh,
        topics=topics,
        tasks=pack(ranges, task_bytes=settings.range_bytes, ranges_per_task=settings.ranges_per_task),
        failures=failures,
    )


def _missing_topics(snapshot: ClusterSnapshot, selection: TopicSelection) -> list[Failure]:
    missing = selection.names_without_topic(topic.name for topic in snapshot.topics)
    return [Failure(topic=TopicName(name), message=f"topic {name} does not exist") for name in missing]


def _plan_topic(
    topic: TopicSnapshot, previous: Manifest | None, starts_afresh: bool, settings: PlannerSettings
) -> TopicPlan:
    latest = None if previous is None else previous.latest(topic.name)
    is_recreated = latest is not None and latest.topic_id != topic.topic_id
    if latest is None:
        generation = 1
    elif latest.topic_id == topic.topic_id:
        generation = latest.generation
    else:
        generation, latest = latest.generation + 1, None
    known = {} if latest is None or starts_afresh else {entry.partition: entry for entry in latest.partitions}
    partitions = [
        _plan_partition(topic, generation, partition, known.get(partition.partition), settings)
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition)
        if partition.error is None
    ]
    return TopicPlan(
        name=topic.name,
        topic_id=topic.topic_id,
        generation=generation,
        is_internal=topic.is_internal,
        partition_count=len(topic.partitions),
        configs=topic.configs,
        partitions=partitions,
        is_recreated=is_recreated,
    )


def require_topics(plan: Plan, selection: TopicSelection, *, allow_empty: bool) -> None:
    """A run that selects nothing is a mistake: it would be complete, and take the place of one that holds something."""
    if plan.topics or allow_empty:
        return
    reason = f"no topic of the cluster matches source.topics (include: {', '.join(selection.include)}"
    reason += f"; exclude: {', '.join(selection.exclude)})" if selection.exclude else ")"
    if plan.failures:
        reason = plan.failures[0].message
    raise BackupError(
        f"{reason}: nothing was backed up and no manifest was written (backup.allow_empty: true, if that is meant)"
    )


def _plan_partition(
    topic: TopicSnapshot,
    generation: int,
    snapshot: PartitionSnapshot,
    entry: PartitionEntry | None,
    settings: PlannerSettings,
) -> PartitionPlan:
    superseded_from = None if entry is None else divergence_offset(entry, snapshot)
    start, gap = _where_to_begin(snapshot, entry, superseded_from)
    end = max(start, snapshot.end_offset)
    return PartitionPlan(
        partition=snapshot.partition,
        start_offset=start,
        end_offset=end,
        captured_start_offset=snapshot.log_start_offset,
        captured_end_offset=snapshot.end_offset,
        captured_leader_epoch=snapshot.end_epoch if snapshot.end_epoch >= 0 else snapshot.leader_epoch,
        previous_end_offset=None if entry is None else entry.end_offset,
        superseded_from_offset=superseded_from,
        gap=gap,
        ranges=_split(topic, generation, snapshot, settings, start=start, end=end),
    )


def _where_to_begin(
    snapshot: PartitionSnapshot, entry: PartitionEntry | None, superseded_from: Offset | None
) -> tuple[Offset, Gap | None]:
    if entry is None:
        return snapshot.log_start_offset, None
    start = entry.end_offset if superseded_from is None else superseded_from
    if start >= snapshot.log_start_offset:
        return start, None
    gap = Gap(
        start_offset=start,
        end_offset=snapshot.log_start_offset,
        reason=GapReason.RETENTION,
        detail="deleted by the cluster before this run",
    )
    return snapshot.log_start_offset, gap


def _split(
    topic: TopicSnapshot,
    generation: int,
    snapshot: PartitionSnapshot,
    settings: PlannerSettings,
    *,
    start: Offset,
    end: Offset,
) -> list[OffsetRange]:
    if start >= end:
        return []
    estimated_bytes = estimate_bytes(
        end - start,
        local_bytes=snapshot.log_bytes,
        local_start=max(snapshot.log_start_offset, snapshot.local_log_start_offset),
        local_end=max(snapshot.end_offset, snapshot.high_watermark or 0),
        assumed_bytes_per_offset=settings.assumed_bytes_per_offset,
    )
    whole = OffsetRange(
        topic=topic.name,
        topic_id=topic.topic_id,
        generation=generation,
        partition=snapshot.partition,
        leader=snapshot.leader,
        leader_epoch=snapshot.leader_epoch,
        start_offset=start,
        end_offset=end,
        is_first=True,
        is_last=True,
        estimated_bytes=estimated_bytes,
    )
    return cut(whole, estimated_bytes // settings.range_bytes)


def divergence_offset(entry: PartitionEntry, snapshot: PartitionSnapshot) -> Offset | None:
    """The first offset at which copy and log diverge (KIP-101, KIP-320); None where they do not.

    A leader that gives no answer about epochs shows a truncation only by a log that became shorter. The high watermark
    of a leader that was just elected may lag for a moment, so it is asked only then.
    """
    epoch_end = snapshot.epoch_end
    if entry.last_leader_epoch is None or epoch_end is None or epoch_end.leader_epoch < 0:
        end = snapshot.high_watermark
    else:
        end = _end_of_shared_history(entry, epoch_end.leader_epoch, epoch_end.end_offset)
    if end is None or end >= entry.end_offset:
        return None
    return end


def _end_of_shared_history(entry: PartitionEntry, leader_epoch: int, end_offset: Offset) -> Offset:
    """An epoch above the one that the leader answered with was copied from a leader whose log was cut off."""
    lost = [epoch.start_offset for epoch in entry.leader_epochs if epoch.leader_epoch > leader_epoch]
    return min([end_offset, *lost])
