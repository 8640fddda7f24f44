"""The group coordinator of this node: which shards it runs, and which shard a request belongs to.

A group belongs to one partition of ``__consumer_offsets``, and whoever leads that partition coordinates the group. The
metadata image says who that is; there is no other place to ask.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar, cast
from uuid import UUID

import msgspec

from quorate.coordination.answers import vouched_for
from quorate.coordination.coordinator import CoordinatorEnvironment
from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.groups.core.commands import (
    Command,
    EndTransaction,
    EndTransactionResult,
    ForgetTopics,
    ListGroups,
    ListGroupsResult,
    Result,
)
from quorate.coordination.groups.core.config import GroupConfig
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from quorate.coordination.groups.core.consumer.settings import ConsumerGroupSettings, MigrationPolicy
from quorate.coordination.groups.core.refusal import binds, refusal
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.coordination.groups.shard_runner import GroupShardRunner
from quorate.coordination.groups.topic_patterns import TopicPatterns
from quorate.coordination.groups.topics import ImageTopics
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import GroupId, PartitionIndex, PartitionLeader, TopicName
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import Broker, Delta, MetadataImage
from quorate.records.control import TransactionEnd

logger = logging.getLogger(__name__)

ResultType = TypeVar("ResultType", bound=Result)

_OFFSETS_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "compression.type": "producer",
}


class GroupCoordinator:
    def __init__(self, environment: CoordinatorEnvironment, new_uuid: Callable[[], UUID]) -> None:
        self._environment = environment
        self._new_uuid = new_uuid
        self._runners: dict[PartitionIndex, GroupShardRunner] = {}
        self._group_configs = environment.metadata.image.group_configs
        self._patterns = TopicPatterns(environment.loop, environment.executor)
        image = environment.metadata.image
        self._topics = ImageTopics(image, image.version, self._patterns.matches)

    def start(self) -> None:
        metadata, partitions = self._environment.metadata, self._environment.partitions
        topic = metadata.image.topics.get(CONSUMER_OFFSETS)
        for index in () if topic is None else topic.partitions:
            self._leadership_changed(CONSUMER_OFFSETS, index, partitions.own_leadership(CONSUMER_OFFSETS, index))
        metadata.subscribe(self._topics_changed)
        metadata.subscribe(self._topics_deleted)
        partitions.on_role_changed(self._leadership_changed)

    def stop(self) -> None:
        for index in list(self._runners):
            self._stop_runner(index)

    async def ask(self, group_id: GroupId, command: Command, result_type: type[ResultType]) -> ResultType:
        """Have the group's shard carry out the command, if this node coordinates the group."""
        runner = self._runner_for(group_id)
        result = refusal(command, ErrorCode.NOT_COORDINATOR)
        if runner is not None:
            answer = runner.ask(command)
            result = await vouched_for(answer, binds, runner, self._environment.metadata, otherwise=result)
        assert isinstance(result, result_type)
        return result

    async def heartbeat(self, command: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResult:
        """Have the shard carry it out when the topics are known that the group's patterns match."""
        runner = self._runner_for(command.group_id)
        unresolved = set() if runner is None else runner.unresolved_patterns(command)
        if unresolved:
            await self._patterns.look_up(unresolved, self._topics)
        return await self.ask(command.group_id, command, ConsumerGroupHeartbeatResult)

    async def end_transaction(self, index: PartitionIndex, end: TransactionEnd) -> ErrorCode:
        """Write the end of a transaction to a partition of the offsets topic, and decide what it left pending there."""
        runner = self._runners.get(index)
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        return cast(EndTransactionResult, await runner.ask(EndTransaction(end=end))).error

    async def list_groups(self, command: ListGroups) -> ListGroupsResult:
        results = [
            cast(ListGroupsResult, result)
            for result in await asyncio.gather(*(runner.ask(command) for runner in list(self._runners.values())))
        ]
        return ListGroupsResult(
            error=next((result.error for result in results if result.error is not ErrorCode.NONE), ErrorCode.NONE),
            groups=tuple(group for result in results for group in result.groups),
        )

    async def find(self, group_id: GroupId) -> Broker:
        """The node that coordinates the group. Makes the offsets topic the first time anybody asks."""
        if CONSUMER_OFFSETS not in self._environment.metadata.image.topics:
            await self._create_offsets_topic()
        image = self._environment.metadata.image
        index = self.partition_for(group_id)
        leader = None if index is None else image.partition_leader(CONSUMER_OFFSETS, index)
        broker = None if leader is None else image.brokers.get(leader.node_id)
        if broker is None:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return broker

    async def _create_offsets_topic(self) -> None:
        command = CreateTopic(
            name=CONSUMER_OFFSETS,
            partition_count=self._environment.int_config("offsets.topic.num.partitions"),
            replication_factor=self._environment.int_config("offsets.topic.replication.factor"),
            replication_factor_is_upper_bound=True,
            configs=_OFFSETS_TOPIC_CONFIGS,
        )
        try:
            await self._environment.metadata.submit_one(command)
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("offsets topic not created node=%s error=%s", self._environment.node_id, error)
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE) from error

    def partition_for(self, group_id: GroupId) -> PartitionIndex | None:
        topic = self._environment.metadata.image.topics.get(CONSUMER_OFFSETS)
        return None if topic is None else partition_for(group_id, len(topic.partitions))

    def _runner_for(self, group_id: GroupId) -> GroupShardRunner | None:
        index = self.partition_for(group_id)
        return None if index is None else self._runners.get(index)

    def _topics_changed(self, image: MetadataImage, delta: Delta) -> None:
        self._topics = self._topics.after(image, delta)
        for runner in list(self._runners.values()):
            runner.topics_changed(self._topics)
        if image.group_configs is not self._group_configs:
            self._group_configs = image.group_configs
            own_settings = self._own_settings(image)
            for runner in list(self._runners.values()):
                runner.settings_changed(own_settings)

    def _topics_deleted(self, image: MetadataImage, delta: Delta) -> None:  # noqa: ARG002 - a listener's signature
        deleted = {topic.name for topic in delta.deleted_topics}
        if CONSUMER_OFFSETS in deleted:
            self.stop()
        forgotten = frozenset(deleted - {CONSUMER_OFFSETS})
        if forgotten:
            for runner in list(self._runners.values()):
                runner.ask(ForgetTopics(topics=forgotten))

    def _leadership_changed(self, topic: TopicName, index: PartitionIndex, leader: PartitionLeader | None) -> None:
        if topic != CONSUMER_OFFSETS:
            return
        leads = leader is not None and leader.node_id == self._environment.node_id
        runner = self._runners.get(index)
        if runner is not None and (not leads or leader is None or runner.leader_epoch != leader.leader_epoch):
            self._stop_runner(index)
        if leads and index not in self._runners:
            self._start_runner(index)

    def _start_runner(self, index: PartitionIndex) -> None:
        try:
            partition = self._environment.partitions.led(CONSUMER_OFFSETS, index)
        except KafkaError as error:
            logger.error("groups not coordinated partition=%s-%s error=%s", CONSUMER_OFFSETS, index, error)
            return
        runner = self._runners[index] = GroupShardRunner(
            GroupCoordinatorShard(self._config(), self._new_uuid),
            partition,
            loop=self._environment.loop,
            clock=self._environment.clock,
            executor=self._environment.executor,
            on_failure=self._runner_failed,
        )
        runner.topics_changed(self._topics)
        runner.settings_changed(self._own_settings(self._environment.metadata.image))
        runner.start()

    def _runner_failed(self, failed: GroupShardRunner) -> None:
        """What its log says cannot be known: better no coordinator than one that has forgotten offsets."""
        index = failed.partition.identity.partition
        if self._runners.get(index) is failed:
            self._stop_runner(index)

    def _stop_runner(self, index: PartitionIndex) -> None:
        self._runners.pop(index).stop()

    def _config(self) -> GroupConfig:
        setting = self._environment.int_config
        return GroupConfig(
            min_session_timeout_ms=setting("group.min.session.timeout.ms"),
            max_session_timeout_ms=setting("group.max.session.timeout.ms"),
            initial_rebalance_delay_ms=setting("group.initial.rebalance.delay.ms"),
            max_group_size=setting("group.max.size"),
            offset_metadata_max_bytes=setting("offset.metadata.max.bytes"),
            offsets_retention_ms=setting("offsets.retention.minutes") * 60_000,
            offsets_retention_check_interval_ms=setting("offsets.retention.check.interval.ms"),
            consumer=self._consumer_settings(),
        )

    def _own_settings(self, image: MetadataImage) -> dict[GroupId, ConsumerGroupSettings]:
        """Of the groups that have configs of their own."""
        base = self._consumer_settings()
        return {
            group_id: msgspec.structs.replace(
                base,
                session_timeout_ms=int(configs.get("consumer.session.timeout.ms", base.session_timeout_ms)),
                heartbeat_interval_ms=int(configs.get("consumer.heartbeat.interval.ms", base.heartbeat_interval_ms)),
            )
            for group_id, configs in image.group_configs.items()
        }

    def _consumer_settings(self) -> ConsumerGroupSettings:
        setting = self._environment.int_config
        return ConsumerGroupSettings(
            session_timeout_ms=setting("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=setting("group.consumer.heartbeat.interval.ms"),
            max_group_size=setting("group.consumer.max.size"),
            assignors=cast(tuple[str, ...], self._environment.config("group.consumer.assignors")),
            migration_policy=MigrationPolicy(str(self._environment.config("group.consumer.migration.policy"))),
        )
