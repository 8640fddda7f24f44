"""Turns what is asked of a live cluster into tasks: which partitions, from where to where, how many at once. Does I/O.

The ends of the logs are captured when the plan is made, so that a batch read has an end whatever producers do.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from quorate.backup.planning.ranges import DEFAULT_RANGES_PER_TASK, OffsetRange, cut, estimate_bytes, pack
from quorate.backup.spark.data_source.live_reading import LiveTask
from quorate.backup.spark.data_source.options import SourceOptions
from quorate.client.cluster_metadata import TopicMetadata
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.client.offsets import ListedOffset
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import NO_NODE, LeaderEpoch, NodeId, Offset, TopicId, TopicPartition
from quorate.records.columnar import INT64_MIN

_ASSUMED_BYTES_PER_OFFSET: Final = 1000
_FIRST_GENERATION: Final = 1


class LivePartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a selected topic, as it was when it was looked at."""

    name: TopicPartition
    topic_id: TopicId
    leader: NodeId
    leader_epoch: LeaderEpoch
    log_start_offset: Offset
    end_offset: Offset  # For readers of the wanted isolation.
    end_epoch: LeaderEpoch  # The newest one when the end was asked for.
    log_bytes: int | None  # On the leader's disk.
    local_log_start_offset: Offset  # Where what is on its disk begins (KIP-405).


def plan_live(client_config: ClientConfig, options: SourceOptions) -> list[LiveTask]:
    with KafkaClient(client_config) as client:
        partitions = look_at(client, options)
        spans = wanted_offsets(client, partitions, options)
    return pack_tasks(partitions, spans, client_config, options)


def look_at(client: KafkaClient, options: SourceOptions, *, must_exist: bool = True) -> list[LivePartition]:
    """The selected partitions with the ends of their logs; one that does not answer is an error."""
    metadata = client.cluster.metadata()
    missing = options.topics.names_without_topic(metadata.topics)
    if missing and must_exist:
        raise QuorateError(f"topic {missing[0]} does not exist")
    selected = {
        TopicPartition(topic.name, partition.index): (topic, partition)
        for topic in metadata.topics.values()
        if options.topics.selects(topic.name, is_internal=topic.is_internal)
        for partition in _readable(topic).partitions.values()
        if options.wants_partition(partition.index)
    }
    ends = client.offsets.latest(selected, options.isolation)
    starts = client.offsets.earliest(selected)
    log_bytes = client.cluster.log_bytes(selected)
    local_starts = client.offsets.try_earliest_local(selected)
    return [
        LivePartition(
            name=name,
            topic_id=topic.topic_id,
            leader=NO_NODE if partition.leader is None else partition.leader,
            leader_epoch=partition.leader_epoch,
            log_start_offset=starts[name].offset or Offset(0),
            end_offset=ends[name].offset or Offset(0),
            end_epoch=ends[name].leader_epoch,
            log_bytes=log_bytes.get(name),
            local_log_start_offset=_offset_or_zero(local_starts[name]),
        )
        for name, (topic, partition) in sorted(selected.items())
    ]


def wanted_offsets(
    client: KafkaClient, partitions: Iterable[LivePartition], options: SourceOptions
) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """From where to where each partition is read."""
    spans: dict[TopicPartition, tuple[Offset, Offset]] = {}
    for each in partitions:
        _check_named_offsets(each, options)
        start = each.end_offset if options.start_offsets.is_latest else options.start_offsets.of(*each.name)
        end = options.end_offsets.of(*each.name)
        spans[each.name] = (
            each.log_start_offset if start is None else Offset(max(start, each.log_start_offset)),
            each.end_offset if end is None else Offset(min(end, each.end_offset)),
        )
    if options.start_ms == INT64_MIN:
        return spans
    # Everything before the first record of that time or later is earlier.
    found = client.offsets.at_timestamp(dict.fromkeys(spans, max(0, options.start_ms)), options.isolation)
    return {
        name: (end if (first := found[name].offset) is None else Offset(max(start, first)), end)
        for name, (start, end) in spans.items()
    }


def pack_tasks(
    partitions: Iterable[LivePartition],
    spans: Mapping[TopicPartition, tuple[Offset, Offset]],
    client_config: ClientConfig,
    options: SourceOptions,
) -> list[LiveTask]:
    """Large spans are cut, small ones of the same leader share a task."""
    task_bytes = options.max_bytes_per_task
    ranges = [each for partition in partitions for each in _ranges_of(partition, *spans[partition.name], task_bytes)]
    return [
        LiveTask(
            client=client_config,
            ranges=task.ranges,
            isolation=options.isolation,
            start_ms=options.start_ms,
            end_ms=options.end_ms,
            columns=options.columns,
            fail_on_data_loss=options.fail_on_data_loss,
        )
        for task in pack(ranges, task_bytes=task_bytes, ranges_per_task=DEFAULT_RANGES_PER_TASK)
    ]


def _readable(topic: TopicMetadata) -> TopicMetadata:
    if topic.error is not ErrorCode.NONE:
        raise QuorateError(f"topic {topic.name} cannot be read: {topic.error.name}")
    return topic


def _offset_or_zero(answer: ListedOffset | QuorateError) -> Offset:
    """A leader that cannot tell is taken to have all of its log."""
    return Offset(0) if isinstance(answer, QuorateError) else answer.offset or Offset(0)


def _check_named_offsets(partition: LivePartition, options: SourceOptions) -> None:
    """One offset for all partitions is a limit; one that is given for a partition by name must be there."""
    choices = {"start_offset": options.start_offsets, "end_offset": options.end_offsets}
    for option, choice in choices.items():
        named = choice.by_topic.get(partition.name.topic, {}).get(partition.name.partition)
        if named is not None and not partition.log_start_offset <= named <= partition.end_offset:
            raise QuorateError(
                f"option {option} names offset {named} of partition {partition.name}, which holds "
                f"{partition.log_start_offset} to {partition.end_offset}"
            )


def _ranges_of(partition: LivePartition, start: Offset, end: Offset, task_bytes: int) -> list[OffsetRange]:
    if end <= start:
        return []
    estimated_bytes = estimate_bytes(
        end - start,
        local_bytes=partition.log_bytes,
        local_start=max(partition.log_start_offset, partition.local_log_start_offset),
        local_end=partition.end_offset,
        assumed_bytes_per_offset=_ASSUMED_BYTES_PER_OFFSET,
    )
    whole = OffsetRange(
        topic=partition.name.topic,
        topic_id=partition.topic_id,
        generation=_FIRST_GENERATION,
        partition=partition.name.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        start_offset=start,
        end_offset=end,
        is_first=True,
        is_last=True,
        estimated_bytes=estimated_bytes,
    )
    return cut(whole, -(-estimated_bytes // task_bytes))
