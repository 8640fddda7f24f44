"""What one manifest changes of the one before it.

A round of a continuous backup adds a few segments to what may be a hundred thousand. Its manifest is stored as a delta:
the manifest that it follows, and of each list that differs the one place where it does, which is nearly always its end.
Where it names layers, the base is the uppermost of them, and not a manifest under that number.
``delta_between`` gives a delta only where applying it brings back the manifest exactly.
"""

from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from quorate.backup.errors import DamagedManifest
from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    AbortedTransactionEntry,
    Failure,
    Gap,
    GroupEntry,
    GroupOffset,
    Layers,
    Manifest,
    PartitionEntry,
    RunSettings,
    SegmentEntry,
    SupersededTail,
    TopicEntry,
)
from quorate.backup.objects.stored_documents import (
    Count,
    DurationMs,
    ManifestNumber,
    MomentMs,
    StoredEpoch,
    StoredOffset,
    StoredPartition,
    one_line,
)
from quorate.backup.segments.layout import EpochStart
from quorate.kernel.ids import TopicId, TopicName

Item = TypeVar("Item")
TopicKey = tuple[TopicName, TopicId]


class Splice(msgspec.Struct, Generic[Item], frozen=True, array_like=True):
    """In a list: ``cut`` items go from ``position`` on, and ``put`` comes there."""

    position: Count
    cut: Count
    put: list[Item]


class PartitionChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A partition that is not in the base has this change on an empty one."""

    partition: StoredPartition
    start_offset: StoredOffset
    end_offset: StoredOffset
    captured_start_offset: StoredOffset
    captured_end_offset: StoredOffset
    captured_leader_epoch: StoredEpoch
    segments: Splice[SegmentEntry] | None = None
    gaps: Splice[Gap] | None = None
    superseded: Splice[SupersededTail] | None = None
    leader_epochs: Splice[EpochStart] | None = None
    aborted_transactions: Splice[AbortedTransactionEntry] | None = None


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    name: TopicName
    topic_id: TopicId
    entry: TopicEntry | None = None  # Without partitions; None where all beside them is as in the base.
    partitions: list[PartitionChange] = []
    removed_partitions: list[StoredPartition] = []


class GroupChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    group: str
    state: str = ""
    protocol_type: str = ""
    offsets: Splice[GroupOffset] | None = None


class Chain(msgspec.Struct, frozen=True, array_like=True):
    """What is read to know a manifest: a whole one, or layers, and the deltas on top."""

    snapshot_bytes: Count
    delta_count: Count = 0
    delta_bytes: Count = 0

    def with_delta(self, size_bytes: int) -> "Chain":
        return Chain(self.snapshot_bytes, self.delta_count + 1, self.delta_bytes + size_bytes)


class ManifestDelta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    format_version: int
    number: ManifestNumber
    backup_id: str
    base_number: ManifestNumber
    base_run_id: str
    base_chain: Chain
    run_id: str
    created_ms: MomentMs
    captured_ms: MomentMs
    settings: RunSettings | None = None  # None: as in the base.
    topics: list[TopicChange] = []
    removed_topics: list[TopicKey] = []
    groups: list[GroupChange] = []
    removed_groups: list[str] = []
    group_ages_ms: list[DurationMs] | None = (
        None  # Of all groups by name: how long before ``captured_ms`` each was captured.
    )
    failures: list[Failure] = []
    compacted_from: ManifestNumber | None = None
    layers: Layers = []  # Empty: those of the base.


def delta_between(base: Manifest, manifest: Manifest, chain: Chain) -> ManifestDelta | None:
    """None where the manifest cannot be told as a delta on the base. ``chain`` is that of the base."""
    before = {(topic.name, topic.topic_id): topic for topic in base.topics}
    after = {(topic.name, topic.topic_id): topic for topic in manifest.topics}
    groups_before = {group.group: group for group in base.groups}
    groups_after = {group.group: group for group in manifest.groups}
    delta = ManifestDelta(
        format_version=FORMAT_VERSION,
        number=manifest.number,
        backup_id=manifest.backup_id,
        base_number=base.number,
        base_run_id=base.run_id,
        base_chain=chain,
        run_id=manifest.run_id,
        created_ms=manifest.created_ms,
        captured_ms=manifest.captured_ms,
        settings=None if manifest.settings == base.settings else manifest.settings,
        topics=[_topic_change(before.get(key), topic) for key, topic in after.items() if topic != before.get(key)],
        removed_topics=[key for key in before if key not in after],
        groups=[
            change for group in manifest.groups if (change := _group_change(groups_before.get(group.group), group))
        ],
        removed_groups=[name for name in groups_before if name not in groups_after],
        group_ages_ms=_group_ages(base, manifest),
        failures=manifest.failures,
        compacted_from=manifest.compacted_from,
        layers=[] if manifest.layers == base.layers else manifest.layers,
    )
    return delta if _apply(base, delta) == manifest else None


def apply_delta(base: Manifest, delta: ManifestDelta) -> Manifest:
    """The manifest that the delta was made of; ``DamagedManifest`` where the base is another one."""
    if (base.number, base.run_id, base.backup_id) != (delta.base_number, delta.base_run_id, delta.backup_id):
        raise DamagedManifest(
            f"manifest {delta.number} of backup {delta.backup_id} follows manifest {delta.base_number} of run "
            f"{one_line(delta.base_run_id)}, and there is manifest {base.number} of run {one_line(base.run_id)} "
            "in its place"
        )
    return _apply(base, delta)


def _apply(base: Manifest, delta: ManifestDelta) -> Manifest:
    topics = {(topic.name, topic.topic_id): topic for topic in base.topics}
    for key in delta.removed_topics:
        topics.pop(key, None)
    for change in delta.topics:
        key = (change.name, change.topic_id)
        topics[key] = _apply_topic(topics.get(key), change, delta)
    return Manifest(
        format_version=delta.format_version,
        number=delta.number,
        backup_id=delta.backup_id,
        cluster_id=base.cluster_id,
        run_id=delta.run_id,
        created_ms=delta.created_ms,
        captured_ms=delta.captured_ms,
        settings=base.settings if delta.settings is None else delta.settings,
        topics=sorted(topics.values(), key=lambda topic: (topic.name, topic.generation)),
        groups=_apply_groups(base, delta),
        failures=delta.failures,
        compacted_from=delta.compacted_from,
        layers=delta.layers or base.layers,
    )


def _topic_change(before: TopicEntry | None, after: TopicEntry) -> TopicChange:
    known = {} if before is None else {entry.partition: entry for entry in before.partitions}
    there = {entry.partition for entry in after.partitions}
    bare = msgspec.structs.replace(after, partitions=[])
    return TopicChange(
        name=after.name,
        topic_id=after.topic_id,
        entry=None if before is not None and msgspec.structs.replace(before, partitions=[]) == bare else bare,
        partitions=[
            _partition_change(known.get(entry.partition), entry)
            for entry in after.partitions
            if entry != known.get(entry.partition)
        ],
        removed_partitions=[index for index in known if index not in there],
    )


def _apply_topic(before: TopicEntry | None, change: TopicChange, delta: ManifestDelta) -> TopicEntry:
    place = f"manifest {delta.number} of backup {delta.backup_id}: topic {change.name}"
    bare = before if change.entry is None else change.entry
    if bare is None:
        raise DamagedManifest(f"{place} is not in the manifest that it follows")
    known = {} if before is None else {entry.partition: entry for entry in before.partitions}
    for index in change.removed_partitions:
        known.pop(index, None)
    for each in change.partitions:
        known[each.partition] = _apply_partition(known.get(each.partition), each, place)
    return msgspec.structs.replace(bare, partitions=[entry for _, entry in sorted(known.items())])


def _partition_change(before: PartitionEntry | None, after: PartitionEntry) -> PartitionChange:
    return PartitionChange(
        partition=after.partition,
        start_offset=after.start_offset,
        end_offset=after.end_offset,
        captured_start_offset=after.captured_start_offset,
        captured_end_offset=after.captured_end_offset,
        captured_leader_epoch=after.captured_leader_epoch,
        segments=_splice([] if before is None else before.segments, after.segments),
        gaps=_splice([] if before is None else before.gaps, after.gaps),
        superseded=_splice([] if before is None else before.superseded, after.superseded),
        leader_epochs=_splice([] if before is None else before.leader_epochs, after.leader_epochs),
        aborted_transactions=_splice([] if before is None else before.aborted_transactions, after.aborted_transactions),
    )


def _apply_partition(before: PartitionEntry | None, change: PartitionChange, place: str) -> PartitionEntry:
    return PartitionEntry(
        partition=change.partition,
        start_offset=change.start_offset,
        end_offset=change.end_offset,
        captured_start_offset=change.captured_start_offset,
        captured_end_offset=change.captured_end_offset,
        captured_leader_epoch=change.captured_leader_epoch,
        segments=_spliced([] if before is None else before.segments, change.segments, place),
        gaps=_spliced([] if before is None else before.gaps, change.gaps, place),
        superseded=_spliced([] if before is None else before.superseded, change.superseded, place),
        leader_epochs=_spliced([] if before is None else before.leader_epochs, change.leader_epochs, place),
        aborted_transactions=_spliced(
            [] if before is None else before.aborted_transactions, change.aborted_transactions, place
        ),
    )


def _group_change(before: GroupEntry | None, after: GroupEntry) -> GroupChange | None:
    """None where nothing but the time of its capture differs."""
    offsets = _splice([] if before is None else before.offsets, after.offsets)
    is_same = before is not None and (before.state, before.protocol_type) == (after.state, after.protocol_type)
    if is_same and offsets is None:
        return None
    return GroupChange(group=after.group, state=after.state, protocol_type=after.protocol_type, offsets=offsets)


def _group_ages(base: Manifest, manifest: Manifest) -> list[int] | None:
    """None where every group has the time that it has in the base."""
    times = {group.group: group.captured_ms for group in manifest.groups}
    if times == {group.group: group.captured_ms for group in base.groups}:
        return None
    return [manifest.captured_ms - time for _, time in sorted(times.items())]


def _apply_groups(base: Manifest, delta: ManifestDelta) -> list[GroupEntry]:
    place = f"manifest {delta.number} of backup {delta.backup_id}"
    groups = {group.group: group for group in base.groups}
    for name in delta.removed_groups:
        groups.pop(name, None)
    for change in delta.groups:
        before = groups.get(change.group)
        groups[change.group] = GroupEntry(
            group=change.group,
            captured_ms=0 if before is None else before.captured_ms,
            state=change.state,
            protocol_type=change.protocol_type,
            offsets=_spliced([] if before is None else before.offsets, change.offsets, place),
        )
    found = [group for _, group in sorted(groups.items())]
    if delta.group_ages_ms is None:
        return found
    if len(delta.group_ages_ms) != len(found):
        raise DamagedManifest(f"{place} has the times of {len(delta.group_ages_ms)} groups, not of {len(found)}")
    return [
        msgspec.structs.replace(group, captured_ms=delta.captured_ms - age_ms)
        for group, age_ms in zip(found, delta.group_ages_ms, strict=True)
    ]


def _splice(before: Sequence[Item], after: Sequence[Item]) -> Splice[Item] | None:
    """None where both are the same."""
    shorter = min(len(before), len(after))
    head = next((place for place in range(shorter) if before[place] != after[place]), shorter)
    if head == len(before) == len(after):
        return None
    tail = 0
    while tail < shorter - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return Splice(head, len(before) - tail - head, list(after[head : len(after) - tail]))


def _spliced(before: list[Item], splice: Splice[Item] | None, place: str) -> list[Item]:
    if splice is None:
        return before
    end = splice.position + splice.cut
    if splice.position < 0 or splice.cut < 0 or end > len(before):
        raise DamagedManifest(f"{place}: it changes items {splice.position} to {end} of a list of {len(before)}")
    return [*before[: splice.position], *splice.put, *before[end:]]
