"""From one manifest to the next: updates under requirements.

``commit`` changes nothing that is there; it returns the manifest that would follow. Whether it does follow is decided
by the storage, which lets only one writer put a number (``catalog``).
"""

from collections.abc import Sequence

import msgspec

from quorate.backup.errors import RequirementFailed
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    AbortedTransactionEntry,
    Failure,
    Gap,
    GroupEntry,
    Manifest,
    PartitionEntry,
    RunSettings,
    SegmentEntry,
    SupersededTail,
    TopicEntry,
)
from quorate.backup.manifests.rules import check_manifest
from quorate.backup.segments.layout import EpochStart
from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, PartitionIndex, TopicId, TopicName


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Who commits, and when. Clock and random id are the caller's."""

    backup_id: str
    cluster_id: str
    run_id: str
    created_ms: int
    captured_ms: int
    settings: RunSettings
    number: int | None = None  # None: the one after the previous manifest's.


class StartAfresh(msgspec.Struct, frozen=True):
    """Repeat nothing of the previous manifest: this run has copied everything itself."""


class PutTopic(msgspec.Struct, frozen=True, kw_only=True):
    name: TopicName
    topic_id: TopicId
    generation: int
    is_internal: bool
    partition_count: int
    configs: dict[str, str]


class PutPartition(msgspec.Struct, frozen=True, kw_only=True):
    """Note the log's captured ends; a partition that is new begins, empty, at ``start_offset``."""

    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset
    captured_start_offset: Offset
    captured_end_offset: Offset
    captured_leader_epoch: LeaderEpoch


class SupersedeTail(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    from_offset: Offset


class AppendRange(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied from the partition's end up to ``end_offset``."""

    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    start_offset: Offset
    end_offset: Offset
    segments: list[SegmentEntry] = []
    gaps: list[Gap] = []
    leader_epochs: list[EpochStart] = []
    aborted_transactions: list[AbortedTransactionEntry] = []


class PutGroups(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[GroupEntry]


class PutFailures(msgspec.Struct, frozen=True, kw_only=True):
    failures: list[Failure]


Update = StartAfresh | PutTopic | PutPartition | SupersedeTail | AppendRange | PutGroups | PutFailures


class PreviousIs(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest that the run was planned on; None where there was none."""

    number: int | None


class ClusterIs(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str


class PartitionEndsAt(msgspec.Struct, frozen=True, kw_only=True):
    topic: TopicName
    topic_id: TopicId
    partition: PartitionIndex
    end_offset: Offset


Requirement = PreviousIs | ClusterIs | PartitionEndsAt


def after(previous: Manifest, requirements: Sequence[Requirement]) -> list[Requirement]:
    """The same requirements on another manifest, which says the same as the one that they were made for."""
    return [PreviousIs(number=previous.number) if isinstance(each, PreviousIs) else each for each in requirements]


def commit(
    previous: Manifest | None, run: Run, updates: Sequence[Update], requirements: Sequence[Requirement]
) -> Manifest:
    """The manifest after ``previous``; ``RequirementFailed`` where it is not what the updates were made for.

    ``previous`` was read from a catalog, which checks all that it reads.
    """
    for requirement in requirements:
        _check(requirement, previous, run)
    following = 1 if previous is None else previous.number + 1
    draft = _Draft(previous, following if run.number is None else run.number)
    for update in updates:
        draft.apply(update)
    manifest = Manifest(
        format_version=FORMAT_VERSION,
        number=draft.number,
        backup_id=run.backup_id,
        cluster_id=run.cluster_id,
        run_id=run.run_id,
        created_ms=run.created_ms,
        captured_ms=run.captured_ms,
        settings=run.settings,
        topics=draft.topics(),
        groups=draft.groups,
        failures=draft.failures,
        layers=draft.layers,
    )
    check_manifest(manifest, previous)
    return manifest


def _check(requirement: Requirement, previous: Manifest | None, run: Run) -> None:
    match requirement:
        case PreviousIs(number=number):
            found = None if previous is None else previous.number
            if found != number:
                raise RequirementFailed(
                    f"backup {run.backup_id} was at manifest {number or 'none'} when the run began "
                    f"and is at {found or 'none'} now: another run has committed"
                )
        case ClusterIs(cluster_id=cluster_id):
            require_cluster(previous, cluster_id)
        case PartitionEndsAt():
            _check_partition_end(requirement, previous)


def require_cluster(previous: Manifest | None, cluster_id: str) -> None:
    """Raise where the backup is another cluster's: two clusters under one id would be taken for one."""
    if previous is not None and previous.cluster_id != cluster_id:
        raise RequirementFailed(
            f"backup {previous.backup_id} is of cluster {previous.cluster_id} and this is cluster {cluster_id}: "
            "use another backup_id"
        )


def _check_partition_end(requirement: PartitionEndsAt, previous: Manifest | None) -> None:
    topic = None if previous is None else previous.find(requirement.topic_id, requirement.topic)
    partitions = [] if topic is None else topic.partitions
    entry = next((each for each in partitions if each.partition == requirement.partition), None)
    if entry is None or entry.end_offset != requirement.end_offset:
        raise RequirementFailed(
            f"partition {requirement.topic}-{requirement.partition} does not end at offset "
            f"{requirement.end_offset} in the manifest, so the run does not continue it"
        )


class _Draft:
    """The next manifest in the making."""

    def __init__(self, previous: Manifest | None, number: int) -> None:
        self.number = number
        self.groups: list[GroupEntry] = [] if previous is None else previous.groups
        self.layers = [] if previous is None else previous.layers
        self.failures: list[Failure] = []  # Each run tells its own.
        self._topics: dict[tuple[TopicName, TopicId], TopicEntry] = {}
        self._partitions: dict[tuple[TopicName, TopicId], dict[PartitionIndex, PartitionEntry]] = {}
        for topic in [] if previous is None else previous.topics:
            key = (topic.name, topic.topic_id)
            self._topics[key] = topic
            self._partitions[key] = {entry.partition: entry for entry in topic.partitions}

    def topics(self) -> list[TopicEntry]:
        entries = []
        for key, topic in self._topics.items():
            partitions = [entry for _, entry in sorted(self._partitions[key].items())]
            entries.append(msgspec.structs.replace(topic, partitions=partitions))
        return sorted(entries, key=lambda topic: (topic.name, topic.generation))

    def apply(self, update: Update) -> None:
        match update:
            case StartAfresh():
                self._topics.clear()
                self._partitions.clear()
                self.groups = []
                self.layers = []
            case PutTopic():
                self._put_topic(update)
            case PutPartition():
                self._put_partition(update)
            case SupersedeTail():
                entry = self._entry(update)
                self._store(update, supersede(entry, update.from_offset, found_in_manifest=self.number))
            case AppendRange():
                self._store(update, _append(self._entry(update), update))
            case PutGroups(groups=groups):
                self.groups = sorted(groups, key=lambda group: group.group)  # As a delta puts them together.
            case PutFailures(failures=failures):
                self.failures = failures

    def _put_topic(self, update: PutTopic) -> None:
        key = (update.name, update.topic_id)
        self._partitions.setdefault(key, {})
        self._topics[key] = TopicEntry(
            name=update.name,
            topic_id=update.topic_id,
            generation=update.generation,
            is_internal=update.is_internal,
            partition_count=update.partition_count,
            configs=update.configs,
        )

    def _put_partition(self, update: PutPartition) -> None:
        partitions = self._partitions[update.topic, update.topic_id]
        entry = partitions.get(update.partition)
        if entry is None:
            entry = PartitionEntry(
                partition=update.partition,
                start_offset=update.start_offset,
                end_offset=update.start_offset,
                captured_start_offset=update.captured_start_offset,
                captured_end_offset=update.captured_end_offset,
                captured_leader_epoch=update.captured_leader_epoch,
            )
        else:
            entry = msgspec.structs.replace(
                entry,
                captured_start_offset=update.captured_start_offset,
                captured_end_offset=update.captured_end_offset,
                captured_leader_epoch=update.captured_leader_epoch,
            )
        partitions[update.partition] = entry

    def _entry(self, update: SupersedeTail | AppendRange) -> PartitionEntry:
        return self._partitions[update.topic, update.topic_id][update.partition]

    def _store(self, update: SupersedeTail | AppendRange, entry: PartitionEntry) -> None:
        self._partitions[update.topic, update.topic_id][update.partition] = entry


def _append(entry: PartitionEntry, update: AppendRange) -> PartitionEntry:
    if update.start_offset != entry.end_offset:
        raise RequirementFailed(
            f"partition {update.topic}-{update.partition} ends at offset {entry.end_offset}; "
            f"what was copied begins at {update.start_offset}"
        )
    last_epoch = entry.leader_epochs[-1].leader_epoch if entry.leader_epochs else NO_LEADER_EPOCH
    return msgspec.structs.replace(
        entry,
        end_offset=update.end_offset,
        segments=[*entry.segments, *update.segments],
        gaps=[*entry.gaps, *update.gaps],
        leader_epochs=[
            *entry.leader_epochs,
            *(epoch for epoch in update.leader_epochs if epoch.leader_epoch > last_epoch),
        ],
        aborted_transactions=sorted({*entry.aborted_transactions, *update.aborted_transactions}),
    )


def supersede(entry: PartitionEntry, from_offset: Offset, *, found_in_manifest: int) -> PartitionEntry:
    """The entry after a truncation: the log no longer holds what was copied from ``from_offset`` on."""
    if from_offset >= entry.end_offset:
        return entry
    tail = SupersededTail(
        start_offset=from_offset,
        end_offset=entry.end_offset,
        leader_epoch=entry.leader_epochs[-1].leader_epoch if entry.leader_epochs else NO_LEADER_EPOCH,
        found_in_manifest=found_in_manifest,
        segments=[segment for segment in entry.segments if segment.start_offset >= from_offset],
    )
    return msgspec.structs.replace(
        entry,
        start_offset=min(entry.start_offset, from_offset),
        end_offset=from_offset,
        segments=[_cut_segment(each, from_offset) for each in entry.segments if each.start_offset < from_offset],
        gaps=[_cut_gap(each, from_offset) for each in entry.gaps if each.start_offset < from_offset],
        superseded=[*entry.superseded, tail],
        leader_epochs=[epoch for epoch in entry.leader_epochs if epoch.start_offset < from_offset],
        aborted_transactions=[each for each in entry.aborted_transactions if each.first_offset < from_offset],
    )


def _cut_segment(segment: SegmentEntry, from_offset: Offset) -> SegmentEntry:
    if segment.live_end_offset <= from_offset:
        return segment
    return msgspec.structs.replace(segment, superseded_from_offset=from_offset)


def _cut_gap(gap: Gap, from_offset: Offset) -> Gap:
    return msgspec.structs.replace(gap, end_offset=min(gap.end_offset, from_offset))
