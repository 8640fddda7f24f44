"""The cluster that a restore writes to, as its driver sees it: topics found, made and finished. Does I/O."""

import sys
from collections.abc import Iterable, Sequence

from quorate.backup.restore.checks import ExistingTopic, broker_defaults, existing_topic_refusal
from quorate.backup.restore.config import RestoreConfig, RestoreSection
from quorate.backup.restore.plan import RestorePlan, TargetTopic
from quorate.backup.restore.topics import SelectedTopic, change_when_restored, configs_while_restoring
from quorate.client.admin.configs import ConfigResource
from quorate.client.admin.topics import BROKER_DEFAULT, NewTopic
from quorate.client.config import ClientConfig
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import ErrorCode, KafkaError, QuorateError
from quorate.kernel.ids import PartitionIndex, ProducerId, TopicId, TopicName, TopicPartition
from quorate.metadata.core.topic_configs import RESTORE_PRODUCER_ID
from quorate.protocol.codes import ResourceType

#: Stands in for the restore's own, which it does not have before it begins.
_ANY_PRODUCER_ID = ProducerId(0)
_MAX_MESSAGE_BYTES = "max.message.bytes"
_SEGMENT_BYTES = "segment.bytes"
_BROKER_MAX_MESSAGE_BYTES = "message.max.bytes"
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588  # Apache Kafka's, where a broker does not tell.


def target_client_config(config: RestoreConfig) -> ClientConfig:
    """How driver and tasks reach the target."""
    target = config.target
    return ClientConfig(
        bootstrap_servers=target.bootstrap_servers,
        client_id="quorate-restore",
        security=target.security,
        metadata_refresh_interval_ms=target.metadata_refresh_interval_ms,
        request_timeout_ms=target.request_timeout_ms,
        retry_timeout_ms=config.restore.deadline_ms,
    )


class RestoreTarget:
    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        metadata = client.cluster.metadata()
        self.cluster_id = metadata.cluster_id or "unknown"
        self.broker_count = len(metadata.brokers)

    def existing(self, names: Iterable[TopicName]) -> dict[TopicName, ExistingTopic]:
        wanted = set(names)
        topics = [topic for topic in self._client.cluster.metadata().topics.values() if topic.name in wanted]
        partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
        ends = self._client.offsets.latest(partitions)
        return {
            topic.name: ExistingTopic(
                topic_id=topic.topic_id,
                partition_count=len(topic.partitions),
                record_offsets=sum(ends[TopicPartition(topic.name, index)].offset or 0 for index in topic.partitions),
            )
            for topic in topics
        }

    def max_batch_bytes(self, topics: Sequence[SelectedTopic]) -> dict[TopicName, int]:
        """The largest batch that each target topic will take. One that is there keeps what the backup does not set."""
        names = {topic.target for topic in topics}
        there = [name for name in self._client.cluster.metadata().topics if name in names]
        own = self._client.configs.describe_topics(there) if there else {}
        default = self._broker_limit()

        def limit(topic: SelectedTopic, name: str, default: int) -> int:
            entry = own.get(topic.target, {}).get(name)
            value = topic.configs.get(name) or (entry and entry.value) or default
            try:
                return int(value)
            except ValueError:
                raise QuorateError(
                    f"topic {topic.source.name} has {name} {value!r}, which is no number: "
                    "set it in restore.topic_configs"
                ) from None

        return {
            topic.target: min(limit(topic, _MAX_MESSAGE_BYTES, default), limit(topic, _SEGMENT_BYTES, sys.maxsize))
            for topic in topics
        }

    def validate(self, topics: Iterable[SelectedTopic], restore: RestoreSection) -> None:
        """Raise unless the cluster would create each of them, without creating any."""
        producer_id = _ANY_PRODUCER_ID if restore.preserve_offsets else None
        for topic in topics:
            configs = configs_while_restoring(topic.configs, restore.log_append_time, producer_id)
            new = _new_topic(topic.target, topic.partition_count, configs, restore.replication_factor)
            try:
                self._client.topics.create([new], validate_only=True)
            except KafkaError as error:
                raise QuorateError(_creation_problem(topic, error)) from None

    def active_groups(self, groups: Sequence[str]) -> list[str]:
        described = self._client.groups.describe(groups)
        return [group for group in groups if any(each.is_active for key, each in described.items() if key == group)]

    def create(self, plan: RestorePlan) -> dict[TopicName, TopicId]:
        """Make every topic of the plan ready for data, whether it is there or not, and return their ids."""
        found = self.existing(topic.name for topic in plan.topics)
        topic_ids = {name: topic.topic_id for name, topic in found.items()}
        for topic in plan.topics:
            producer_id = plan.producer_id if plan.preserve_offsets else None
            configs = configs_while_restoring(topic.configs, plan.log_append_time, producer_id)
            if topic.name not in found:
                new = _new_topic(topic.name, topic.partition_count, configs, plan.replication_factor)
                topic_ids |= self._create(new)
                continue
            if plan.preserve_offsets:
                self._require_state(topic.name, plan.producer_id)
            self._client.configs.alter_topic(topic.name, values=configs)
        return topic_ids

    def default_configs(self) -> dict[str, str]:
        """The configs of a restored topic where its own say nothing. What it had before is gone then."""
        brokers = [ConfigResource(ResourceType.BROKER, str(each)) for each in self._client.cluster.metadata().brokers]
        described = self._client.configs.describe(brokers[:1])
        return broker_defaults({key: entry.value for entries in described.values() for key, entry in entries.items()})

    def finish(self, topic: TargetTopic, plan: RestorePlan) -> None:
        """The log's start and the configs as they were at the source, now that the data is in."""
        starts = {
            TopicPartition(topic.name, each.partition): each.kept_offsets.log_start_offset
            for each in topic.partitions
            if each.kept_offsets is not None and each.kept_offsets.log_start_offset > 0
        }
        if starts:
            self._client.topics.delete_records(starts)
        change = change_when_restored(topic.configs, plan.log_append_time, keeps_offsets=plan.preserve_offsets)
        self._client.configs.alter_topic(topic.name, values=change.values, delete=change.delete)

    def unwritten(self, topics: Iterable[TargetTopic]) -> list[str]:
        """Which partitions do not end where the plan says, after everything was written."""
        expected = {
            TopicPartition(topic.name, PartitionIndex(each.partition)): each.log_end_offset
            for topic in topics
            for each in topic.partitions
        }
        ends = self._client.offsets.latest(expected)
        return [
            f"{name} ends at offset {ends[name].offset}, not {end}"
            for name, end in expected.items()
            if ends[name].offset != end
        ]

    def _create(self, new: NewTopic) -> dict[TopicName, TopicId]:
        try:
            return self._client.topics.create([new])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
        # The answer to an earlier try was lost, or another command runs the same restore.
        found = self.existing([new.name])
        if new.name not in found:
            raise QuorateError(f"topic {new.name} was made just now, and not every broker knows it: restore again")
        return {new.name: found[new.name].topic_id}

    def _require_state(self, name: TopicName, producer_id: ProducerId) -> None:
        """A topic that this restore made before it was stopped, and no other."""
        found = self._client.configs.describe_topics([name])[name].get(RESTORE_PRODUCER_ID)
        if found is None or found.value != str(producer_id):
            raise QuorateError(existing_topic_refusal(name))

    def _broker_limit(self) -> int:
        resources = [
            ConfigResource(ResourceType.BROKER, str(node_id)) for node_id in self._client.cluster.metadata().brokers
        ]
        limits: list[int] = []
        for entries in self._client.configs.describe(resources).values():
            entry = entries.get(_BROKER_MAX_MESSAGE_BYTES)
            if entry is not None and entry.value is not None:
                limits.append(int(entry.value))
        return min(limits, default=_DEFAULT_MAX_MESSAGE_BYTES)


def _new_topic(
    name: TopicName, partition_count: int, configs: dict[str, str], replication_factor: int | None
) -> NewTopic:
    return NewTopic(
        name=name,
        partitions=partition_count,
        replication_factor=BROKER_DEFAULT if replication_factor is None else replication_factor,
        configs=configs,
    )


def _creation_problem(topic: SelectedTopic, error: KafkaError) -> str:
    if error.code is ErrorCode.INVALID_REPLICATION_FACTOR:
        return f"{error}: start more brokers, or set a smaller restore.replication_factor"
    if error.code is ErrorCode.INVALID_CONFIG and RESTORE_PRODUCER_ID in str(error):
        return (
            "the target cannot take records at their original offsets, which only a Quorate cluster of this version "
            "can: set restore.preserve_offsets to false"
        )
    if error.code is ErrorCode.INVALID_CONFIG:
        return f"{error}: change it in restore.topic_configs, or leave it out there with null"
    return f"{error}: change it for {topic.source.name} in the restore's settings"
