"""The group coordinator of this node: what it does beside running the shards of ``__consumer_offsets``.

Shards are told of the cluster's topics and of the groups' settings, and of topics that are gone.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor
from typing import Never, TypeVar, cast
from uuid import UUID

import msgspec

from quorate.coordination.coordinator import Coordinator, CoordinatorEnvironment
from quorate.coordination.groups.core import records
from quorate.coordination.groups.core.commands import (
    Command,
    ForgetTopics,
    ListGroups,
    ListGroupsResult,
    Result,
    SettlePendingOffsets,
    SettlePendingOffsetsResult,
)
from quorate.coordination.groups.core.config import ConsumerGroupSettings, GroupConfig, MigrationPolicy
from quorate.coordination.groups.core.consumer.commands import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatResult
from quorate.coordination.groups.core.consumer.topics import ClusterTopics, Matches, TopicShape, VisibleTopics
from quorate.coordination.groups.core.effects import GroupSettingsChanged, TopicsChanged
from quorate.coordination.groups.core.records import CoordinatorRecord
from quorate.coordination.groups.core.refusal import binds, refusal
from quorate.coordination.groups.core.shard import GroupCoordinatorShard
from quorate.coordination.log import CoordinatorLog
from quorate.coordination.runtime import ShardRunner
from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import GroupId, PartitionIndex, TopicId, TopicName
from quorate.kernel.pattern import InvalidPattern, compile_pattern
from quorate.kernel.topic_names import CONSUMER_OFFSETS
from quorate.metadata.core.commands import CreateTopic
from quorate.metadata.core.image import Delta, MetadataImage
from quorate.records.control import TransactionEnd
from quorate.replication.partition import Partition

#: The topics that match a pattern, and the version of the names in which they were looked up.
LookedUp = Mapping[str, tuple[int, frozenset[TopicName]]]
#: Those of some topics that the sender of a request may know of.
Visible = Callable[[Collection[TopicName]], Awaitable[frozenset[TopicName]]]

ResultType = TypeVar("ResultType", bound=Result)

_OFFSETS_TOPIC_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(100 * 1024 * 1024),
    "compression.type": "producer",
}

#: Groups keep what was found for them; here it only has to last until it is handed to them.
_KEPT = 16


class GroupShardRunner(ShardRunner[Command, Result, CoordinatorRecord, TopicsChanged | GroupSettingsChanged, Never]):
    #: Asked which patterns have to be looked up; it is changed by its events alone.
    shard: GroupCoordinatorShard


class GroupCoordinator(Coordinator[GroupId, Command, Result, GroupShardRunner]):
    def __init__(self, environment: CoordinatorEnvironment, new_uuid: Callable[[], UUID]) -> None:
        super().__init__(environment, CONSUMER_OFFSETS)
        self._new_uuid = new_uuid
        self._group_configs = environment.metadata.image.group_configs
        self._patterns = TopicPatterns(environment.loop, environment.executor)
        image = environment.metadata.image
        #: What a pattern matches is then told with each heartbeat, as far as its sender may know.
        self._authorizes = bool(environment.config("authorizer.class.name"))
        self._topics = ImageTopics(image, image.version, self._patterns.matches)
        self._shown_topics = self._shown()

    def start(self) -> None:
        self._environment.metadata.subscribe(self._topics_changed)
        super().start()

    async def ask(self, group_id: GroupId, command: Command, result_type: type[ResultType]) -> ResultType:
        """Have the group's shard carry out the command, if this node coordinates the group."""
        result = await self._ask_shard(group_id, command)
        assert isinstance(result, result_type)
        return result

    async def heartbeat(
        self, command: ConsumerGroupHeartbeat, visible: Visible | None = None
    ) -> ConsumerGroupHeartbeatResult:
        """Have the shard carry it out when the topics are known that the group's patterns match.

        With an authorizer a pattern matches what the member may know of whose heartbeat has it looked up, as in Apache
        Kafka. It is looked up again when topics or ACLs have changed.
        """
        runner = self._runner_for(command.group_id)
        unresolved = set() if runner is None else runner.shard.unresolved_patterns(command)
        if unresolved:
            topics = self._topics
            await self._patterns.look_up(unresolved, topics)
            if visible is not None:
                matches = await _visible_matches(unresolved, topics, visible)
                command = msgspec.structs.replace(command, matches=matches)
        return await self.ask(command.group_id, command, ConsumerGroupHeartbeatResult)

    async def end_transaction(self, index: PartitionIndex, end: TransactionEnd) -> ErrorCode:
        """Write the end of a transaction to a partition of the offsets topic: its offsets are committed or dropped."""
        runner = self._runners.get(index)
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        return cast(SettlePendingOffsetsResult, await runner.ask(SettlePendingOffsets(end=end))).error

    async def list_groups(self, command: ListGroups) -> ListGroupsResult:
        results = [cast(ListGroupsResult, result) for result in await self._ask_all_shards(command)]
        return ListGroupsResult(
            error=next((result.error for result in results if result.error is not ErrorCode.NONE), ErrorCode.NONE),
            groups=tuple(group for result in results for group in result.groups),
        )

    # What shards are told of the cluster.

    def _topics_changed(self, image: MetadataImage, delta: Delta) -> None:
        self._topics = self._topics.after(image, delta, authorizes=self._authorizes)
        self._shown_topics = self._shown()
        for runner in list(self._runners.values()):
            runner.report(TopicsChanged(topics=self._shown_topics))
        if image.group_configs is not self._group_configs:
            self._group_configs = image.group_configs
            own_settings = self._own_settings(image)
            for runner in list(self._runners.values()):
                runner.report(GroupSettingsChanged(settings=own_settings))

    def _shown(self) -> ClusterTopics:
        """What shards see of the topics."""
        if not self._authorizes:
            return self._topics
        return VisibleTopics(self._topics, Matches(names_version=self._topics.names_version, by_pattern={}))

    def _topics_deleted(self, image: MetadataImage, delta: Delta) -> None:
        super()._topics_deleted(image, delta)
        forgotten = frozenset({topic.name for topic in delta.deleted_topics} - {CONSUMER_OFFSETS})
        if forgotten:
            for runner in list(self._runners.values()):
                runner.ask(ForgetTopics(topics=forgotten))

    # What tells groups from transactions.

    def _new_runner(self, partition: Partition) -> GroupShardRunner:
        environment = self._environment
        runner = GroupShardRunner(
            GroupCoordinatorShard(self._config(), self._new_uuid),
            CoordinatorLog(partition, records, environment.loop, environment.executor),
            loop=environment.loop,
            clock=environment.clock,
            on_failure=self._runner_failed,
        )
        runner.report(TopicsChanged(topics=self._shown_topics))
        runner.report(GroupSettingsChanged(settings=self._own_settings(environment.metadata.image)))
        return runner

    def _refusal(self, command: Command, error: ErrorCode) -> Result:
        return refusal(command, error)

    def _binds(self, result: Result) -> bool:
        return binds(result)

    def _topic_to_create(self) -> CreateTopic:
        return CreateTopic(
            name=CONSUMER_OFFSETS,
            partition_count=self._environment.int_config("offsets.topic.num.partitions"),
            replication_factor=self._environment.int_config("offsets.topic.replication.factor"),
            replication_factor_is_upper_bound=True,
            configs=_OFFSETS_TOPIC_CONFIGS,
        )

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


class ImageTopics:
    """The cluster's topics as consumer groups see them: a thin view of the metadata image."""

    def __init__(self, image: MetadataImage, names_version: int, matches: LookedUp) -> None:
        self._image = image
        self.names_version = names_version
        self._matches = matches

    def after(self, image: MetadataImage, delta: Delta, *, authorizes: bool) -> "ImageTopics":
        """The view of the next image. With an authorizer, ACLs say which names may be known."""
        known = self._image.topic_names
        is_new = any(changed.topic_id not in known for changed in delta.changed_partitions)
        may_know_others = authorizes and image.security.acls is not self._image.security.acls
        names_change = bool(delta.deleted_topics) or is_new or may_know_others
        return ImageTopics(image, image.version if names_change else self.names_version, self._matches)

    @property
    def version(self) -> int:
        return self._image.version

    def shape(self, name: TopicName) -> TopicShape | None:
        topic = self._image.topics.get(name)
        return None if topic is None else TopicShape(topic_id=topic.topic_id, partition_count=len(topic.partitions))

    def name_of(self, topic_id: TopicId) -> TopicName | None:
        return self._image.topic_names.get(topic_id)

    def matching(self, pattern: str) -> frozenset[TopicName] | None:
        names_version, names = self._matches.get(pattern, (None, None))
        return names if names_version == self.names_version else None

    @property
    def names(self) -> Mapping[TopicName, object]:
        """Of an image, which never changes: another thread may read them."""
        return self._image.topics


class TopicPatterns:
    """Which topics match the patterns that consumers subscribe to: looked up by a worker thread, one at a time.

    A pattern over all topics of a large cluster takes too long for the event loop, and many of them at once would keep
    the workers from syncing partitions.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._loop = loop
        self._executor = executor
        self._turn = asyncio.Lock()
        self.matches: dict[str, tuple[int, frozenset[TopicName]]] = {}

    async def look_up(self, patterns: Iterable[str], topics: ImageTopics) -> None:
        """Make ``topics`` know what the patterns match; those that are invalid are left to whoever asks for them."""
        for pattern in sorted(patterns):
            async with self._turn:
                if topics.matching(pattern) is None:
                    await self._look_up(pattern, topics)

    async def _look_up(self, pattern: str, topics: ImageTopics) -> None:
        try:
            names = await self._loop.run_in_executor(self._executor, _matching, pattern, topics)
        except InvalidPattern:
            return
        self.matches.pop(pattern, None)
        self.matches[pattern] = (topics.names_version, names)
        while len(self.matches) > _KEPT:
            del self.matches[next(iter(self.matches))]


async def _visible_matches(patterns: Iterable[str], topics: ImageTopics, visible: Visible) -> Matches:
    found = {pattern: names for pattern in patterns if (names := topics.matching(pattern)) is not None}
    known = await visible(frozenset().union(*found.values()))
    by_pattern = {pattern: names & known for pattern, names in found.items()}
    return Matches(names_version=topics.names_version, by_pattern=by_pattern)


def _matching(pattern: str, topics: ImageTopics) -> frozenset[TopicName]:
    return frozenset(map(TopicName, compile_pattern(pattern).matching(topics.names)))
