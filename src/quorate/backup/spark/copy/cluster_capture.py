"""Learns from the cluster what a run has to know: topics, configs, the ends of every log, group offsets. Does I/O.

One partition or group that does not answer is noted as such and holds up none of the others. When all is copied, the
logs are looked at again: whoever fetches a range makes sure that all of it is of one history (KIP-320), but the ranges
of one partition are fetched at different times, and an unclean election in between may have left some of them from
before it, and some from after it.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import msgspec

from quorate.backup.manifests.manifest import Failure, GroupEntry, GroupOffset, Manifest
from quorate.backup.objects.stored_documents import now_ms
from quorate.backup.planning.cluster_snapshot import (
    ClusterSnapshot,
    PartitionSnapshot,
    TopicSelection,
    TopicSnapshot,
)
from quorate.backup.planning.planner import PartitionPlan, Plan
from quorate.client import offsets
from quorate.client.cluster_metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from quorate.client.fetch.batches import IsolationLevel
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, QuorateError
from quorate.kernel.ids import NO_LEADER_EPOCH, NO_NODE, EpochEnd, LeaderEpoch, Offset, TopicName, TopicPartition

_REQUESTS_IN_FLIGHT = 16
_TIERED_CONFIG = "remote.storage.enable"


def capture_cluster(
    client: KafkaClient, selection: TopicSelection, isolation: IsolationLevel, previous: Manifest | None
) -> ClusterSnapshot:
    """``previous`` is the manifest to continue: the cluster is asked what has become of its leader epochs."""
    metadata = client.cluster.metadata()
    selected = [
        topic for topic in metadata.topics.values() if selection.selects(topic.name, is_internal=topic.is_internal)
    ]
    partitions = [TopicPartition(topic.name, index) for topic in selected for index in topic.partitions]
    captured_ms = now_ms()
    ends = client.offsets.try_latest(partitions, isolation)
    # Who did not answer now is not waited for again.
    alive = [name for name, end in ends.items() if not isinstance(end, QuorateError)]
    watermarks = ends
    if isolation is IsolationLevel.READ_COMMITTED:
        watermarks = client.offsets.try_latest(alive)
    epochs = _last_epochs(previous, metadata, set(alive))
    configs = _topic_configs(client, [topic.name for topic in selected if topic.error is ErrorCode.NONE])
    answers = _Answers(
        ends=ends,
        watermarks=watermarks,
        starts=client.offsets.try_earliest(alive),
        epoch_ends=client.offsets.try_epoch_ends(epochs),
        log_bytes=client.cluster.log_bytes(alive),
        local_starts=client.offsets.try_earliest_local([name for name in alive if _is_tiered(configs.get(name.topic))]),
        configs=configs,
    )
    names = {topic.name for topic in selected}
    return ClusterSnapshot(
        cluster_id=metadata.cluster_id or "unknown",
        captured_ms=captured_ms,
        topics=tuple(
            answers.topic(topic) if topic.name in names else _unselected(topic) for topic in metadata.topics.values()
        ),
    )


def capture_groups(
    client: KafkaClient, is_selected: Callable[[TopicName], bool]
) -> tuple[list[GroupEntry], list[Failure]]:
    """Committed offsets of the selected topics, each group with its own time."""

    def capture(group_id: str, state: str, protocol_type: str) -> GroupEntry | Failure:
        try:
            committed = client.groups.offsets(group_id)
        except QuorateError as error:
            return Failure(group=group_id, message=f"the offsets of group {group_id} were not captured: {error}")
        return GroupEntry(
            group=group_id,
            captured_ms=now_ms(),
            state=state,
            protocol_type=protocol_type,
            offsets=[
                GroupOffset(
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=found.offset,
                    leader_epoch=found.leader_epoch,
                    metadata=found.metadata or "",
                )
                for partition, found in sorted(committed.items())
                if is_selected(partition.topic)
            ],
        )

    try:
        groups = client.groups.list()
    except QuorateError as error:
        return [], [Failure(message=f"the consumer groups could not be listed: {error}")]
    with ThreadPoolExecutor(_REQUESTS_IN_FLIGHT) as pool:
        found = list(pool.map(lambda group: capture(group.group_id, group.state, group.protocol_type), groups))
    entries = [each for each in found if isinstance(each, GroupEntry) and each.offsets]
    return entries, [each for each in found if isinstance(each, Failure)]


class _Answers(msgspec.Struct, frozen=True, kw_only=True):
    """All that was asked, put together per topic."""

    ends: Mapping[TopicPartition, offsets.ListedOffset | QuorateError]
    watermarks: Mapping[TopicPartition, offsets.ListedOffset | QuorateError]
    starts: Mapping[TopicPartition, offsets.ListedOffset | QuorateError]
    epoch_ends: Mapping[TopicPartition, EpochEnd | QuorateError]
    log_bytes: Mapping[TopicPartition, int]
    local_starts: Mapping[TopicPartition, offsets.ListedOffset | QuorateError]
    configs: Mapping[TopicName, dict[str, str] | QuorateError]

    def topic(self, topic: TopicMetadata) -> TopicSnapshot:
        configs = self.configs.get(topic.name, {})
        error = None
        if topic.error is not ErrorCode.NONE:
            error = f"topic {topic.name} cannot be read: {topic.error.name}"
        elif isinstance(configs, QuorateError):
            error = f"the configs of topic {topic.name} could not be read: {configs}"
        return TopicSnapshot(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.is_internal,
            configs={} if isinstance(configs, QuorateError) else configs,
            partitions=tuple(self._partition(topic, each) for each in topic.partitions.values()),
            error=error,
        )

    def _partition(self, topic: TopicMetadata, partition: PartitionMetadata) -> PartitionSnapshot:
        name = TopicPartition(topic.name, partition.index)
        end, watermark, start = self.ends[name], self.watermarks.get(name), self.starts.get(name)
        epoch_end = self.epoch_ends.get(name)
        answers = (end, watermark, start, epoch_end)
        error = next((str(each) for each in answers if isinstance(each, QuorateError)), None)
        return PartitionSnapshot(
            partition=partition.index,
            leader=NO_NODE if partition.leader is None else partition.leader,
            leader_epoch=partition.leader_epoch,
            log_start_offset=_offset_of(start),
            end_offset=_offset_of(end),
            end_epoch=end.leader_epoch if isinstance(end, offsets.ListedOffset) else NO_LEADER_EPOCH,
            high_watermark=_offset_of(watermark),
            log_bytes=self.log_bytes.get(name),
            local_log_start_offset=_offset_of(self.local_starts.get(name)),
            epoch_end=_epoch_end(epoch_end),
            error=error,
        )


def _offset_of(answer: offsets.ListedOffset | QuorateError | None) -> Offset:
    if answer is None or isinstance(answer, QuorateError) or answer.offset is None:
        return Offset(0)
    return answer.offset


def _is_tiered(configs: dict[str, str] | QuorateError | None) -> bool:
    return isinstance(configs, dict) and configs.get(_TIERED_CONFIG) == "true"


def _epoch_end(answer: EpochEnd | QuorateError | None) -> EpochEnd | None:
    if answer is None or isinstance(answer, QuorateError) or answer.end_offset < 0:
        return None
    return answer


def _unselected(topic: TopicMetadata) -> TopicSnapshot:
    return TopicSnapshot(name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal)


def _last_epochs(
    previous: Manifest | None, metadata: ClusterMetadata, partitions: set[TopicPartition]
) -> dict[TopicPartition, LeaderEpoch]:
    """The last leader epoch that the previous manifest has of each partition that still exists."""
    epochs: dict[TopicPartition, LeaderEpoch] = {}
    for topic in metadata.topics.values():
        entry = None if previous is None else previous.find(topic.topic_id, topic.name)
        for partition in [] if entry is None else entry.partitions:
            name = TopicPartition(topic.name, partition.partition)
            if name in partitions and partition.last_leader_epoch is not None and partition.last_leader_epoch >= 0:
                epochs[name] = partition.last_leader_epoch
    return epochs


def _topic_configs(client: KafkaClient, names: list[TopicName]) -> dict[TopicName, dict[str, str] | QuorateError]:
    """What was set on the topics themselves."""

    def ask(some: list[TopicName]) -> dict[TopicName, dict[str, str] | QuorateError]:
        found = client.configs.describe_topics(some)
        return {
            name: {
                key: entry.value
                for key, entry in sorted(entries.items())
                if entry.is_set_on_topic and entry.value is not None
            }
            for name, entries in found.items()
        }

    try:
        return ask(names) if names else {}
    except QuorateError as error:
        if len(names) == 1:
            return {names[0]: error}
    found: dict[TopicName, dict[str, str] | QuorateError] = {}
    for name in names:
        found |= _topic_configs(client, [name])
    return found


class AsksForEpochs(Protocol):
    def try_epoch_ends(
        self, epochs: Mapping[TopicPartition, LeaderEpoch]
    ) -> Mapping[TopicPartition, EpochEnd | QuorateError]: ...


def truncated_meanwhile(asked: AsksForEpochs, plan: Plan) -> list[Failure]:
    """Partitions that were copied from two histories. The next run finds where they diverge, and copies the rest."""
    copied = copied_in_parts(plan)
    ends = asked.try_epoch_ends({name: each.captured_leader_epoch for name, each in copied.items()})
    return [
        Failure(
            topic=name.topic,
            partition=name.partition,
            message=f"{name} was truncated to offset {end.end_offset} while it was copied: run the backup again",
        )
        for name, end in ends.items()
        if isinstance(end, EpochEnd) and 0 <= end.end_offset < copied[name].captured_end_offset
    ]


def copied_in_parts(plan: Plan) -> dict[TopicPartition, PartitionPlan]:
    return {
        TopicPartition(topic.name, each.partition): each
        for topic in plan.topics
        for each in topic.partitions
        if len(each.ranges) > 1 and each.captured_leader_epoch >= 0
    }
