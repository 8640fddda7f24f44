"""The scrub: reads all that lies on the disk again and again, at a rate, so that what has rotted is found in time.

It checks every segment of every log, the ones that were written in this life of the process too, sums up those that
have no checksums yet, and checks the small files beside them. ``LogIntegrity`` repairs what it finds.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from datetime import UTC, datetime

import msgspec

from quorate.kernel.conditions import Condition, Conditions, Severity
from quorate.kernel.errors import KafkaError
from quorate.kernel.ports import Clock, Disk
from quorate.kernel.tasks import TaskScope
from quorate.replication.integrity.log_integrity import LogIntegrity
from quorate.replication.partition import Partition
from quorate.replication.partitions import Partitions
from quorate.storage.segment import Segment
from quorate.storage.small_files import find_damaged

logger = logging.getLogger(__name__)

CONDITION = "scrub"
_FIRST_PASS_AFTER_S = 5.0
_SETTINGS_LOOKED_AT_EVERY_S = 1.0
_MIB = 1 << 20


class ScrubSettings(msgspec.Struct, frozen=True):
    #: 0 stops the scrub.
    bytes_per_second: int
    #: From the start of one pass to that of the next.
    interval_ms: int


class Scrub:
    def __init__(
        self,
        partitions: Partitions,
        integrity: LogIntegrity,
        conditions: Conditions,
        *,
        settings: Callable[[], ScrubSettings],
        disk: Disk,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._partitions = partitions
        self._integrity = integrity
        self._conditions = conditions
        self._settings = settings
        self._disk = disk
        self._clock = clock
        self._loop = loop
        self._executor = executor
        self._tasks = TaskScope(loop, on_failure)
        self._total_bytes = 0
        self._checked_bytes = 0
        self._last_pass = "no pass is complete yet"

    def start(self) -> None:
        self._tasks.spawn(self._run())

    async def stop(self) -> None:
        await self._tasks.close()

    async def _run(self) -> None:
        await asyncio.sleep(_FIRST_PASS_AFTER_S)
        while True:
            started = self._loop.time()
            await self._pass()
            while self._loop.time() - started < self._settings().interval_ms / 1000:
                await asyncio.sleep(_SETTINGS_LOOKED_AT_EVERY_S)

    async def _pass(self) -> None:
        partitions = list(self._partitions)
        self._total_bytes = sum(partition.log.size_bytes for partition in partitions)
        self._checked_bytes = 0
        for partition in partitions:
            try:
                await self._check_small_files(partition)
                for segment in partition.log.stored_segments:
                    await self._check(partition, segment)
            except (KafkaError, OSError) as error:
                if partition.failure is None:
                    logger.error("scrub failed partition=%s error=%s", partition, error)
                    partition.check_disk(error)
            self._report()
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        self._last_pass = f"the last complete pass ended at {now:%Y-%m-%dT%H:%M:%SZ}"
        self._checked_bytes = self._total_bytes
        self._report()

    async def _check(self, partition: Partition, segment: Segment) -> None:
        await self._pace(0)
        if partition.failure is not None or not any(each is segment for each in partition.log.stored_segments):
            return
        report = await self._integrity.check(partition, segment, self._pace)
        if report is None:
            return
        if report.is_sound:
            await self._integrity.sum_up(partition, segment)
        else:
            self._integrity.look_after(partition, segment.base_offset)

    async def _check_small_files(self, partition: Partition) -> None:
        directory, topic_id = partition.log.directory, partition.identity.topic_id
        if partition.failure is not None:
            return
        if await self._damaged_small_files(directory, partition):
            # Once more: it may have been read while it was replaced.
            names = await self._damaged_small_files(directory, partition)
            if names and partition.failure is None:
                logger.error("files damaged partition=%s names=%s", partition, ",".join(names))
                self._integrity.damaged_found += len(names)
                partition.log.repair_small_files(names, topic_id)
                partition.group_commit.request(partition)
                self._integrity.repaired += len(names)
                logger.info("files repaired partition=%s names=%s", partition, ",".join(names))

    async def _damaged_small_files(self, directory: str, partition: Partition) -> list[str]:
        return await self._loop.run_in_executor(
            self._executor, find_damaged, self._disk, directory, partition.identity.topic_id
        )

    async def _pace(self, read_bytes: int) -> None:
        """Wait as long as reading so much should have taken, by a rate that may change meanwhile."""
        self._checked_bytes += read_bytes
        owed_bytes = float(read_bytes)
        while True:
            rate = self._settings().bytes_per_second
            wait_s = min(owed_bytes / rate, _SETTINGS_LOOKED_AT_EVERY_S) if rate else _SETTINGS_LOOKED_AT_EVERY_S
            await asyncio.sleep(wait_s)
            owed_bytes -= wait_s * rate
            if rate and owed_bytes < 1:
                return

    def _report(self) -> None:
        integrity = self._integrity
        percent = 100 if not self._total_bytes else min(100, 100 * self._checked_bytes // self._total_bytes)
        sentence = (
            f"{percent} % of {self._total_bytes / _MIB:.1f} MiB are checked in this pass, {self._last_pass}; damage "
            f"found since the start of the node: {integrity.damaged_found}, repaired: {integrity.repaired}"
        )
        self._conditions.set(Condition(kind=CONDITION, severity=Severity.INFORMATION, sentence=sentence))
