"""From offsets of the source to offsets of the target.

A target partition's records are those of its sources, one source after the other, and its offsets count them from 0. So
the map of a partition is the spans of source offsets in that order, and nothing else. Where records keep their offsets,
groups do too.
"""

from collections.abc import Mapping, Sequence

import msgspec

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import GroupEntry
from quorate.backup.objects.stored_documents import StoredPartition
from quorate.backup.restore.plan import MapSource, RestorePlan, TargetTopic
from quorate.kernel.ids import Offset, PartitionIndex, TopicName

OffsetMap = dict[StoredPartition, list[MapSource]]


class TranslatedOffset(msgspec.Struct, frozen=True, kw_only=True):
    """Where a group goes on in a target partition."""

    topic: TopicName
    partition: PartitionIndex
    offset: Offset
    metadata: str = ""


class TranslatedGroup(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    offsets: list[TranslatedOffset]


def translate_group(
    group: GroupEntry, plan: RestorePlan, maps: Mapping[TopicName, OffsetMap], newest: Mapping[TopicName, int]
) -> TranslatedGroup:
    """``maps`` are by target name. ``newest`` has each source topic's newest generation: the one that groups mean."""
    found: list[TranslatedOffset] = []
    for topic in plan.topics:
        committed = {each.partition: each for each in group.offsets if each.topic == topic.source}
        if topic.source not in newest:
            raise BackupError(f"the plan of this restore does not fit its manifest, which has no topic {topic.source}")
        if not committed or topic.generation != newest[topic.source]:
            continue
        offsets = {partition: each.offset for partition, each in committed.items()}
        if plan.preserve_offsets:
            translated = _within_log(topic, offsets)
        else:
            translated = _translate_topic(topic, maps[topic.name], offsets)
        for partition, offset in translated.items():
            known = None if topic.is_rehashed else committed.get(partition)
            metadata = "" if known is None else known.metadata
            found.append(TranslatedOffset(topic=topic.name, partition=partition, offset=offset, metadata=metadata))
    return TranslatedGroup(group=group.group, offsets=found)


def first_unread(sources: Sequence[MapSource], committed: Mapping[PartitionIndex, Offset]) -> Offset:
    """The first target record whose source offset is at or after the committed one of its partition.

    The end where there is none. A source partition without a committed offset was not read at all.
    """
    base = 0
    for source in sources:
        position = committed.get(source.source_partition, Offset(0))
        for first_offset, length in source.spans:
            if first_offset + length > position:
                return Offset(base + max(0, position - first_offset))
            base += length
    return Offset(base)


def _within_log(topic: TargetTopic, committed: Mapping[PartitionIndex, Offset]) -> dict[PartitionIndex, Offset]:
    """The committed offsets as they were, but none beyond the log's end: it would skip what is written there later."""
    ends = {each.partition: each.log_end_offset for each in topic.partitions}
    return {
        partition: min(offset, ends[partition]) for partition, offset in sorted(committed.items()) if partition in ends
    }


def _translate_topic(
    topic: TargetTopic, offset_map: OffsetMap, committed: Mapping[PartitionIndex, Offset]
) -> dict[PartitionIndex, Offset]:
    if not topic.is_rehashed:
        return {
            partition: first_unread(offset_map.get(partition, []), committed)
            for partition in sorted(committed)
            if partition < topic.partition_count
        }
    return {
        PartitionIndex(index): first_unread(offset_map.get(PartitionIndex(index), []), committed)
        for index in range(topic.partition_count)
    }
