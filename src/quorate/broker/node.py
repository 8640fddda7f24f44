"""A node: what it is made of, and the order in which the parts start and stop.

Everything that is not deterministic is handed in through ``Environment``: the loop, the clock, the disk, the threads
and the random source. Handlers get the node and use its parts.
"""

import asyncio
import logging
import posixpath
from collections.abc import Sequence
from concurrent.futures import Executor
from contextlib import suppress
from random import Random
from typing import cast
from uuid import UUID

import msgspec

from quorate.broker.config import NodeConfig
from quorate.kernel.address import Address
from quorate.broker.fetch_sessions import FetchSessions
from quorate.broker.group_commit import GroupCommit
from quorate.broker.group_coordinator import GroupCoordinator
from quorate.broker.housekeeping import Housekeeping, HousekeepingConfig
from quorate.broker.metadata_log import MetadataLog
from quorate.broker.metadata_store import MetadataStore
from quorate.broker.partitions import Partitions
from quorate.broker.producer_ids import ProducerIds
from quorate.kernel.clock import Clock
from quorate.kernel.disk import Disk
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.metadata.commands import CreateTopic, FormCluster, RegisterBroker
from quorate.metadata.config_definitions import ConfigValue
from quorate.metadata.controller import Controller
from quorate.metadata.effective_configs import broker_value
from quorate.metadata.image import Delta, MetadataImage, TopicPartition

logger = logging.getLogger(__name__)


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """What a node needs of the world around it."""

    loop: asyncio.AbstractEventLoop
    clock: Clock
    disk: Disk
    #: Runs what blocks: syncs, compaction.
    executor: Executor
    random: Random


class Node:
    def __init__(self, config: NodeConfig, environment: Environment) -> None:
        self.config = config
        self.loop = environment.loop
        self.clock = environment.clock
        self.disk = environment.disk
        self.executor = environment.executor
        self.random = environment.random
        self.view = config.broker_view()
        self.group_commit = GroupCommit(self.loop, self.executor)

    async def start(self, advertised: Address) -> None:
        """Bring back what is on the disk, take part in the cluster, and be ready for requests."""
        self._make_data_dir()
        self._remove_deleted_logs()
        self._metadata_log = MetadataLog(
            self.disk, self.config.data_dir, clock=self.clock, loop=self.loop, executor=self.executor
        )
        image = self._metadata_log.replay()
        self.metadata = MetadataStore(Controller(self.view, self.new_uuid), image, self._metadata_log.append)
        self.partitions = Partitions(
            disk=self.disk,
            data_dir=self.config.data_dir,
            view=self.view,
            durability=self.config.durability,
            group_commit=self.group_commit,
        )
        self.partitions.metadata_changed(image, _everything(image))
        self.metadata.subscribe(self.partitions.metadata_changed)
        self.producer_ids = ProducerIds(self.metadata)
        self.fetch_sessions = FetchSessions(
            slots=self.int_config("max.incremental.fetch.session.cache.slots"),
            new_session_id=lambda: self.random.randrange(1, 2**31),
        )
        self.fetch_max_bytes = self.int_config("fetch.max.bytes")
        self.auto_creates_topics = bool(self.broker_config("auto.create.topics.enable"))
        await self._join_cluster(advertised)
        self.groups = GroupCoordinator(self)
        self.groups.start()
        self._housekeeping = Housekeeping(
            HousekeepingConfig(
                retention_interval_ms=self.int_config("log.retention.check.interval.ms"),
                cleaning_interval_ms=self.int_config("log.cleaner.backoff.ms"),
                durability=self.config.durability,
            ),
            self.partitions,
            loop=self.loop,
            executor=self.executor,
            disk=self.disk,
            clock=self.clock,
            group_commit=self.group_commit,
        )
        self._housekeeping.start()

    def release_waiting_requests(self) -> None:
        """Before a stop: answer the requests that would otherwise wait for others, parked joins and long polls."""
        self.groups.stop()
        for partition in self.partitions:
            partition.release_watchers()

    async def stop(self) -> None:
        """Leave everything on the disk complete, so that the next start has nothing to check."""
        await self._housekeeping.stop()
        self.groups.stop()
        await self.group_commit.wait_until_idle()
        self.partitions.close()
        self._metadata_log.close()

    async def auto_create_topics(self, names: Sequence[str]) -> dict[str, ErrorCode]:
        """Make topics that a client asked for; returns why not for those that could not be made."""
        outcomes = await self.metadata.submit([CreateTopic(name=name) for name in names])
        return {
            name: outcome.code
            for name, outcome in zip(names, outcomes, strict=True)
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS
        }

    def broker_config(self, name: str) -> ConfigValue:
        return broker_value(self.metadata.image, self.view, name)

    def _make_data_dir(self) -> None:
        """Make the folder so that a power cut cannot take it away again, nor any folder above it."""
        self.disk.make_directory(self.config.data_dir)
        folder = self.config.data_dir
        while (parent := posixpath.dirname(folder)) not in ("", folder):
            with suppress(PermissionError):  # Not ours: it was there before.
                self.disk.sync_directory(parent)
            folder = parent

    def _remove_deleted_logs(self) -> None:
        """Finish deletions that the last stop cut short."""
        for name in self.disk.list_directory(self.config.data_dir):
            if name.endswith("-delete"):
                self.disk.remove_tree(f"{self.config.data_dir}/{name}")

    def new_uuid(self) -> UUID:
        return UUID(int=self.random.getrandbits(128), version=4)

    def int_config(self, name: str) -> int:
        return cast(int, self.broker_config(name))

    async def _join_cluster(self, advertised: Address) -> None:
        if not self.metadata.image.cluster_id:
            await self.metadata.submit_one(FormCluster())
        await self.metadata.submit_one(
            RegisterBroker(
                node_id=self.config.node_id,
                host=advertised.host,
                port=advertised.port,
                rack=self.config.rack,
                fenced=False,
            )
        )


def _everything(image: MetadataImage) -> Delta:
    """The delta from nothing to the image: what a node that starts has to carry out."""
    return Delta(
        changed_partitions=tuple(
            TopicPartition(topic.topic_id, topic.name, index)
            for topic in image.topics.values()
            for index in topic.partitions
        )
    )
