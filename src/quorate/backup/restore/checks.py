"""Why a restore must not begin, and what the target will delete of it: each in one sentence that says what to do.

The facts are handed in.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from quorate.backup.manifests.manifest import Manifest, SegmentEntry
from quorate.backup.restore.plan import RestorePlan, TargetTopic
from quorate.backup.restore.survey import PartitionSurvey
from quorate.backup.restore.topics import SelectedTopic
from quorate.kernel.ids import TopicId, TopicName

_RETENTION_MS = "retention.ms"
_RETENTION_BYTES = "retention.bytes"
_CLEANUP_POLICY = "cleanup.policy"
_MINUTE_MS = 60_000
_DAY_MS = 86_400_000


class ExistingTopic(msgspec.Struct, frozen=True, kw_only=True):
    topic_id: TopicId
    partition_count: int
    record_offsets: int  # How many offsets its partitions have given out: 0 where nothing was ever written.


def topic_refusals(
    topics: Iterable[SelectedTopic], existing: Mapping[TopicName, ExistingTopic], *, keep_offsets: bool = False
) -> Iterator[str]:
    for topic in topics:
        found = existing.get(topic.target)
        if found is None:
            continue
        if keep_offsets:
            yield existing_topic_refusal(topic.target)
            continue
        if found.record_offsets:
            yield (
                f"target topic {topic.target} is not empty: delete it, or restore {topic.source.name} under another "
                "name with restore.topic_mapping"
            )
        elif found.partition_count != topic.partition_count:
            yield (
                f"target topic {topic.target} has {found.partition_count} partitions and needs "
                f"{topic.partition_count}: delete it, or set restore.partition_counts.{topic.source.name} to "
                f"{found.partition_count}"
            )


def existing_topic_refusal(target: TopicName) -> str:
    return f"target topic {target} is there already: delete it, since restore.preserve_offsets has to create it"


def replication_refusal(replication_factor: int | None, broker_count: int) -> Iterator[str]:
    if replication_factor is not None and replication_factor > broker_count:
        yield (
            f"replication factor {replication_factor} needs as many brokers and the target has {broker_count}: "
            "start more of them, or set a smaller restore.replication_factor"
        )


def group_refusals(active_groups: Iterable[str]) -> Iterator[str]:
    for group in active_groups:
        yield (
            f"consumer group {group} is active at the target: stop its members, or leave it out with "
            "restore.consumer_groups.exclude"
        )


def size_refusals(topic: SelectedTopic, surveys: Iterable[PartitionSurvey], max_batch_bytes: int) -> Iterator[str]:
    largest = max((survey.largest_batch_bytes for survey in surveys), default=0)
    if largest > max_batch_bytes:
        yield (
            f"topic {topic.source.name} holds a record that makes a batch of {largest} bytes and {topic.target} takes "
            f"{max_batch_bytes}: set max.message.bytes to {largest} or more in restore.topic_configs"
        )


def broker_defaults(configs: Mapping[str, str | None]) -> dict[str, str]:
    """The topic configs that the target's broker configs give to topics that do not set them."""
    found = {_CLEANUP_POLICY: configs.get("log.cleanup.policy"), _RETENTION_BYTES: configs.get("log.retention.bytes")}
    for name, unit_ms in (("ms", 1), ("minutes", _MINUTE_MS), ("hours", 60 * _MINUTE_MS)):
        value = configs.get(f"log.retention.{name}")
        if value is not None:
            found[_RETENTION_MS] = str(int(value) * unit_ms)
            break
    return {key: value for key, value in found.items() if value is not None}


def retention_warnings(plan: RestorePlan, manifest: Manifest, defaults: Mapping[str, str], *, now_ms: int) -> list[str]:
    """``defaults`` is what holds at the target where the restored configs say nothing."""
    found = (_warning(plan, topic, manifest, {**defaults, **topic.configs}, now_ms) for topic in plan.topics)
    return [warning for warning in found if warning is not None]


def _warning(
    plan: RestorePlan, topic: TargetTopic, manifest: Manifest, configs: Mapping[str, str], now_ms: int
) -> str | None:
    if "delete" not in configs.get(_CLEANUP_POLICY, "delete"):
        return None
    segments = _segments(plan, topic, manifest)
    has_new_times = plan.log_append_time == "new" and configs.get("message.timestamp.type") == "LogAppendTime"
    retention_ms, retention_bytes = _limit(configs, _RETENTION_MS), _limit(configs, _RETENTION_BYTES)
    if retention_ms is not None and not has_new_times:
        cutoff_ms = now_ms - retention_ms
        old = sum(
            each.record_count for each in segments if each.max_timestamp is not None and each.max_timestamp < cutoff_ms
        )
        if old or any(each.min_timestamp is not None and each.min_timestamp < cutoff_ms for each in segments):
            count = f"at least {min(old, topic.record_count):,}" if old else "some"
            return (
                f"topic {topic.name} keeps records for {_duration(retention_ms)} (retention.ms {retention_ms}), and "
                f"{count} of those restored are older: the target will delete them "
                '(topic_configs: {retention.ms: "-1"} keeps them)'
            )
    if retention_bytes is not None and topic.batch_bytes > retention_bytes * topic.partition_count:
        return (
            f"topic {topic.name} keeps {retention_bytes:,} bytes of a partition (retention.bytes), and more are "
            'restored: the target will delete the oldest (topic_configs: {retention.bytes: "-1"} keeps them)'
        )
    return None


def _segments(plan: RestorePlan, topic: TargetTopic, manifest: Manifest) -> Sequence[SegmentEntry]:
    """The segments from which the restore takes something."""
    entry = manifest.find(topic.source_topic_id, topic.source)
    wanted = {source.partition for target in topic.partitions for source in target.sources}
    start_ms = plan.start_ms
    return [
        segment
        for partition in ([] if entry is None else entry.partitions)
        for segment in partition.segments
        if partition.partition in wanted
        if start_ms is None or segment.max_timestamp is None or segment.max_timestamp >= start_ms
    ]


def _limit(configs: Mapping[str, str], key: str) -> int | None:
    value = int(configs.get(key, "-1"))
    return None if value < 0 else value


def _duration(milliseconds: int) -> str:
    if milliseconds >= _DAY_MS:
        return f"{milliseconds / _DAY_MS:.3g} days"
    return f"{milliseconds / _MINUTE_MS:.3g} minutes"
