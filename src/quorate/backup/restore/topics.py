"""Which topics of a manifest are restored: under which names, with how many partitions and which configs.

Old data must not be deleted or compacted before it is complete, its times must not be refused or replaced, and its
bytes must stay as they are. So some configs wait until the data is in, and are then set as at the source.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal

import msgspec

from quorate.backup.errors import ConfigError
from quorate.backup.manifests.manifest import GapReason, Manifest, PartitionEntry, TopicEntry
from quorate.backup.restore.config import RestoreSection
from quorate.kernel.ids import ProducerId, TopicName
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID

_WITHOUT_LIMIT: Final = str(2**63 - 1)
_WHILE_RESTORING: Final[Mapping[str, str]] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "compression.type": "producer",
    "message.timestamp.before.max.ms": _WITHOUT_LIMIT,
    "message.timestamp.after.max.ms": _WITHOUT_LIMIT,
}
_TIMESTAMP_TYPE: Final = "message.timestamp.type"
#: They name brokers and producers of the source.
_NOT_RESTORED: Final = frozenset(
    {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas", RESTORE_PRODUCER_ID}
)


class SelectedTopic(msgspec.Struct, frozen=True, kw_only=True):
    source: TopicEntry
    target: TopicName
    partition_count: int  # Of the target.
    is_rehashed: bool  # Records go by key, since the target has another number of partitions.
    configs: dict[str, str]
    partitions: list[PartitionEntry]  # Of the source, those that are wanted.


def select_topics(manifest: Manifest, restore: RestoreSection) -> list[SelectedTopic]:
    names = sorted({topic.name for topic in manifest.topics})
    for key, asked in _names_asked_for(restore):
        if asked not in names:
            raise ConfigError(f"restore.{key} names topic {asked}, which manifest {manifest.number} does not hold")
    selected = []
    for name in names:
        entry = _life(manifest, name, restore.generations.get(name))
        if restore.topics.selects(name, is_internal=entry.is_internal):
            selected.append(_select(entry, restore))
    _refuse_doubles(selected)
    if not selected:
        raise ConfigError(f"restore.topics selects nothing of the topics in manifest {manifest.number}")
    return selected


def lost_offsets(topic: SelectedTopic) -> int:
    """How many offsets the source had when the backup ran that are not in it."""
    lost = 0
    for partition in topic.partitions:
        gaps = [gap for gap in partition.gaps if gap.reason is not GapReason.EMPTY]
        lost += sum(gap.end_offset - gap.start_offset for gap in gaps)
        lost += max(0, partition.captured_end_offset - partition.end_offset)
    return lost


def missing_partitions(topic: SelectedTopic) -> int:
    """Partitions of the source that the backup never reached."""
    return topic.source.partition_count - len(topic.source.partitions)


def _names_asked_for(restore: RestoreSection) -> Iterator[tuple[str, str]]:
    for name in restore.topics.include:
        if not any(mark in name for mark in "*?["):
            yield "topics.include", name
    for key in ("topic_mapping", "partitions", "generations", "partition_counts"):
        for name in getattr(restore, key):
            yield key, name


def _life(manifest: Manifest, name: TopicName, generation: int | None) -> TopicEntry:
    lives = {topic.generation: topic for topic in manifest.topics if topic.name == name}
    if generation is None:
        return lives[max(lives)]
    if generation not in lives:
        known = ", ".join(str(number) for number in sorted(lives))
        raise ConfigError(f"restore.generations: topic {name} has no generation {generation}, only {known}")
    return lives[generation]


def _select(entry: TopicEntry, restore: RestoreSection) -> SelectedTopic:
    count = restore.partition_counts.get(entry.name, entry.partition_count)
    if restore.preserve_offsets and count != entry.partition_count:
        raise ConfigError(
            f"restore.preserve_offsets keeps records in their partitions: leave topic {entry.name} out of "
            "restore.partition_counts"
        )
    wanted = restore.partitions.get(entry.name)
    held = {partition.partition for partition in entry.partitions}
    for index in wanted or []:
        if index not in held:
            raise ConfigError(f"restore.partitions: the backup holds no partition {index} of topic {entry.name}")
    return SelectedTopic(
        source=entry,
        target=TopicName(restore.topic_mapping.get(entry.name, entry.name)),
        partition_count=count,
        is_rehashed=count != entry.partition_count,
        configs=final_configs(entry.configs, restore.topic_configs),
        partitions=[each for each in entry.partitions if wanted is None or each.partition in wanted],
    )


def _refuse_doubles(selected: list[SelectedTopic]) -> None:
    sources: dict[str, str] = {}
    for topic in selected:
        other = sources.setdefault(topic.target, topic.source.name)
        if other != topic.source.name:
            raise ConfigError(
                f"topics {other} and {topic.source.name} would both be restored as {topic.target}: "
                "give one of them another name in restore.topic_mapping"
            )


class TopicConfigUpdate(msgspec.Struct, frozen=True, kw_only=True):
    values: dict[str, str]
    delete: list[str]


def final_configs(source: Mapping[str, str], overrides: Mapping[str, str | None]) -> dict[str, str]:
    """The topic's configs when all is done."""
    merged: dict[str, str | None] = {**source, **overrides}
    return {key: value for key, value in merged.items() if value is not None and key not in _NOT_RESTORED}


def configs_while_restoring(
    final: Mapping[str, str], log_append_time: Literal["original", "new"], keeps_offsets_of: ProducerId | None = None
) -> dict[str, str]:
    """Where records keep their offsets, they name the restore's producer: until it is done nobody else may write."""
    configs = {**final, **_suspended(log_append_time)}
    return configs if keeps_offsets_of is None else {**configs, RESTORE_PRODUCER_ID: str(keeps_offsets_of)}


def change_when_restored(
    final: Mapping[str, str], log_append_time: Literal["original", "new"], *, keeps_offsets: bool = False
) -> TopicConfigUpdate:
    """From the configs while restoring to the final ones."""
    suspended = _suspended(log_append_time)
    delete = [key for key in suspended if key not in final]
    return TopicConfigUpdate(
        values={key: final[key] for key in suspended if key in final},
        delete=[*delete, RESTORE_PRODUCER_ID] if keeps_offsets else delete,
    )


def _suspended(log_append_time: Literal["original", "new"]) -> dict[str, str]:
    if log_append_time == "new":
        return dict(_WHILE_RESTORING)
    return {**_WHILE_RESTORING, _TIMESTAMP_TYPE: "CreateTime"}
