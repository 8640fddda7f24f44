"""What a node does from time to time: old segments go, compacted topics are cleaned, idle producers are forgotten.

Everything runs in small steps on the loop; cleaning, which reads and writes much, runs in a worker thread, one log at a
time.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor

import msgspec

from quorate.kernel.errors import KafkaError
from quorate.kernel.ports import Clock, Disk
from quorate.kernel.settings import Durability
from quorate.kernel.tasks import TaskScope, logged_failures
from quorate.replication.group_commit import GroupCommit
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partition import Partition
from quorate.replication.partitions import Partitions
from quorate.storage.cleaner import clean
from quorate.storage.reading import UncheckedSegment

logger = logging.getLogger(__name__)

#: How often a log that is not synced by its writers is made durable, which bounds the scan after a crash.
_BACKGROUND_SYNC_INTERVAL_MS = 60_000


class HousekeepingConfig(msgspec.Struct, frozen=True, kw_only=True):
    retention_interval_ms: int
    cleaning_interval_ms: int
    durability: Durability


class Housekeeping:
    def __init__(
        self,
        config: HousekeepingConfig,
        partitions: Partitions,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        disk: Disk,
        clock: Clock,
        group_commit: GroupCommit,
    ) -> None:
        self._config = config
        self._partitions = partitions
        self._loop = loop
        self._executor = executor
        self._disk = disk
        self._clock = clock
        self._group_commit = group_commit
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks = TaskScope(loop, logged_failures(logger, "cleaning"))
        self._cleaning: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        self._every(self._config.retention_interval_ms, "retention", self._apply_retention)
        self._every(self._config.cleaning_interval_ms, "cleaning", self._start_cleaning)
        if self._config.durability is Durability.OS:
            self._every(_BACKGROUND_SYNC_INTERVAL_MS, "sync", self._sync_all)

    async def stop(self) -> None:
        """Start nothing more, and wait for what a worker thread is doing."""
        self._stopped = True
        for timer in self._timers.values():
            timer.cancel()
        if self._cleaning is not None:
            await self._cleaning

    def _every(self, interval_ms: int, name: str, action: Callable[[], None]) -> None:
        def fire() -> None:
            if not self._stopped:
                self._timers[name] = self._loop.call_later(interval_ms / 1000, fire)
                action()

        self._timers[name] = self._loop.call_later(interval_ms / 1000, fire)

    def _apply_retention(self) -> None:
        now_ms = self._clock.now_ms()
        for partition in self._partitions:
            try:
                deleted = partition.log.apply_retention(now_ms, up_to_offset=partition.high_watermark)
                partition.log.expire_producers(now_ms)
                partition.drop_idle()
            except UncheckedSegment as error:
                partition.sound_again(error)  # The next round finds it checked.
                continue
            except KafkaError as error:
                logger.error("retention failed partition=%s error=%s", partition, error)
                partition.check_disk(error)
                continue
            if deleted:
                logger.info("segments deleted partition=%s base_offsets=%s", partition, deleted)

    def _sync_all(self) -> None:
        for partition in self._partitions:
            if partition.log.synced_end_offset < partition.log.log_end_offset:
                self._group_commit.request(partition)

    def _start_cleaning(self) -> None:
        if self._cleaning is None or self._cleaning.done():
            self._cleaning = self._tasks.spawn(self._clean_all())

    async def _clean_all(self) -> None:
        for partition in list(self._partitions):
            if self._stopped:
                return
            try:
                await self._clean(partition)
            except Exception as error:  # Whatever is wrong with one log, the others are cleaned.
                if partition.failure is None:
                    logger.error("cleaning failed partition=%s error=%r", partition, error)
                    partition.check_disk(error)

    async def _clean(self, partition: Partition) -> None:
        if partition.failure is not None or not partition.log.config.compacts:
            return
        # What is not stable yet may still be aborted, and must not supersede what is kept.
        log, now_ms = partition.log, self._clock.now_ms()
        plan = await when_sound(partition, lambda: log.plan_cleaning(now_ms, up_to_offset=partition.last_stable_offset))
        if plan is None or partition.failure is not None:
            return
        cleaned = await self._loop.run_in_executor(self._executor, clean, self._disk, plan)
        # The topic may have been deleted meanwhile.
        if partition.failure is None:
            partition.log.install(cleaned)
            logger.info("log cleaned partition=%s", partition)
