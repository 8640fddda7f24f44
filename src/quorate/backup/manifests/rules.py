"""What holds in every manifest: checked before one is written and after one is read.

Manifests follow each other, and one repeats nearly all of the one before. What it repeats of one that was checked is
compared, not checked again.
"""

from itertools import pairwise

import msgspec

from quorate.backup.errors import DamagedManifest
from quorate.backup.manifests.manifest import Gap, Manifest, PartitionEntry, SegmentEntry, TopicEntry
from quorate.backup.objects.names import is_name_of_segment, is_safe_segment, partition_folder
from quorate.kernel.ids import PartitionIndex

# Partitions cost a restore memory and time also where a manifest has nothing of them but their number.
_MAX_UNREACHED_PARTITIONS = 200_000


def check_manifest(manifest: Manifest, checked: Manifest | None = None) -> None:
    """Raise ``DamagedManifest``, naming the place, unless all the rules hold. Of ``checked`` they are known to hold."""
    if manifest is checked:
        return
    lives = [(topic.name, topic.generation) for topic in manifest.topics]
    ids = [(topic.name, topic.topic_id) for topic in manifest.topics]
    if len(set(lives)) < len(lives) or len(set(ids)) < len(ids):
        raise DamagedManifest(f"manifest {manifest.number} names one life of a topic twice")
    unreached = sum(topic.partition_count - len(topic.partitions) for topic in manifest.topics)
    if unreached > _MAX_UNREACHED_PARTITIONS:
        raise DamagedManifest(f"manifest {manifest.number} claims {unreached} partitions beside those that it lists")
    if any(group.captured_ms < 0 for group in manifest.groups):
        raise DamagedManifest(f"manifest {manifest.number} has consumer groups from before 1970")
    if manifest.compacted_from is not None and manifest.compacted_from >= manifest.number:
        raise DamagedManifest(f"manifest {manifest.number} claims to be a compaction of {manifest.compacted_from}")
    _check_layers(manifest)
    known = {} if checked is None else {(topic.name, topic.topic_id): topic for topic in checked.topics}
    folders: set[str] = set()
    for topic in manifest.topics:
        if not is_safe_segment(topic.name):
            raise DamagedManifest(f"manifest {manifest.number} has a topic {topic.name!r}, which no cluster can have")
        folder = partition_folder(topic.name, topic.topic_id, PartitionIndex(0))
        if folder in folders:
            raise DamagedManifest(f"manifest {manifest.number} has two topics in one folder: {topic.name} is one")
        folders.add(folder)
        _check_topic(manifest, topic, known.get((topic.name, topic.topic_id)))


def coverage(partition: PartitionEntry) -> list[SegmentEntry | Gap]:
    """Segments and gaps in the order of their offsets."""
    pieces: list[SegmentEntry | Gap] = [*partition.segments, *partition.gaps]
    return sorted(pieces, key=lambda piece: piece.start_offset)


def end_of(piece: SegmentEntry | Gap) -> int:
    return piece.live_end_offset if isinstance(piece, SegmentEntry) else piece.end_offset


def _check_layers(manifest: Manifest) -> None:
    numbers = [layer.number for layer in manifest.layers]
    if numbers != sorted(set(numbers)) or any(number > manifest.number for number in numbers):
        raise DamagedManifest(f"manifest {manifest.number} has layers out of order")


def _check_topic(manifest: Manifest, topic: TopicEntry, checked: TopicEntry | None) -> None:
    indexes = [partition.partition for partition in topic.partitions]
    if indexes != sorted(set(indexes)) or any(index >= topic.partition_count for index in indexes):
        raise DamagedManifest(f"manifest {manifest.number}: topic {topic.name} has partitions out of order")
    known = {} if checked is None else {partition.partition: partition for partition in checked.partitions}
    for partition in topic.partitions:
        before = known.get(partition.partition)
        if partition is before:
            continue
        place = f"manifest {manifest.number}: partition {topic.name}-{partition.partition}"
        tails = [segment for tail in partition.superseded for segment in tail.segments]
        folder = partition_folder(topic.name, topic.topic_id, partition.partition)
        if before is not None and _goes_on(before, partition):
            # A name has the first offset of its segment, so that a new one can only be that of a superseded segment.
            new = _behind(before, partition)
            _check_partition(place, new, before.segments[-1:])
            _check_names(place, new.segments, folder, {segment.name for segment in tails})
        else:
            _check_partition(place, partition, [])
            _check_names(place, [*partition.segments, *tails], folder, set())


def _goes_on(before: PartitionEntry, partition: PartitionEntry) -> bool:
    """Whether it begins with all that is in the other. Most of it is the very same objects, which compare fast."""
    return (
        partition.start_offset == before.start_offset
        and partition.segments[: len(before.segments)] == before.segments
        and partition.gaps[: len(before.gaps)] == before.gaps
        and partition.superseded == before.superseded
    )


def _behind(before: PartitionEntry, partition: PartitionEntry) -> PartitionEntry:
    return msgspec.structs.replace(
        partition,
        start_offset=before.end_offset,
        segments=partition.segments[len(before.segments) :],
        gaps=partition.gaps[len(before.gaps) :],
    )


def _check_partition(place: str, partition: PartitionEntry, last: list[SegmentEntry]) -> None:
    """``last`` is the segment before those of the partition, if any."""
    next_offset: int = partition.start_offset
    for piece in coverage(partition):
        if isinstance(piece, SegmentEntry):
            _check_segment(place, piece)
        if piece.start_offset != next_offset:
            raise DamagedManifest(f"{place}: nothing, or two things, for the offsets at {next_offset}")
        next_offset = end_of(piece)
        if next_offset <= piece.start_offset:
            raise DamagedManifest(f"{place}: an empty piece at offset {piece.start_offset}")
    if next_offset != partition.end_offset:
        raise DamagedManifest(f"{place}: covered up to offset {next_offset}, not {partition.end_offset}")
    for before, after in pairwise([*last, *partition.segments]):
        if before.superseded_from_offset is None and after.first_offset <= before.last_offset:
            raise DamagedManifest(f"{place}: offset {after.first_offset} is in two segments")


def _check_segment(place: str, segment: SegmentEntry) -> None:
    """A plain segment is restored by these numbers alone."""
    offsets = segment.last_offset - segment.first_offset + 1
    is_possible = segment.control_record_count <= segment.record_count <= offsets
    if not is_possible or (segment.is_plain and segment.record_count != offsets):
        raise DamagedManifest(
            f"{place}: {segment.record_count} records cannot have the offsets {segment.first_offset} to "
            f"{segment.last_offset}"
        )


def _check_names(place: str, segments: list[SegmentEntry], folder: str, seen: set[str]) -> None:
    """Names lead to objects that are read and deleted: none is believed that does not follow from the rest."""
    for segment in segments:
        if not is_name_of_segment(segment.name, folder, segment.start_offset):
            raise DamagedManifest(
                f"{place} names {segment.name!r}, which is not the name of its segment at offset {segment.start_offset}"
            )
        if segment.name in seen:
            raise DamagedManifest(f"{place} names {segment.name} twice")
        seen.add(segment.name)
