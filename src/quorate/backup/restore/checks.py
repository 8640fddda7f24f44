"""Why a restore must not begin, each reason in one sentence that says what to do. Pure: the facts are handed in."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from quorate.backup.restore.survey import PartitionSurvey
from quorate.backup.restore.topics import SelectedTopic
from quorate.kernel.ids import TopicId, TopicName


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
