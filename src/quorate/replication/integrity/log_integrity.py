"""Checks segments before anybody reads what an earlier life of the process left, and repairs what is damaged.

Each partition is looked after by one task at a time. What is made from the log, such as its indexes, is made anew from
the log. Damaged records come from another replica; a leader gives the lead to a replica that has them first. Where
nobody has them, their range is answered with CORRUPT_MESSAGE, everything else is served, and it is tried again later.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor

from quorate.kernel.conditions import Condition, Conditions
from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import NodeId, Offset
from quorate.kernel.ports import Disk
from quorate.kernel.tasks import TaskScope
from quorate.replication.integrity.other_replicas import AskReplica, Replacements
from quorate.replication.leading import Leading
from quorate.replication.partition import Partition
from quorate.storage.damage import DamagedRange
from quorate.storage.reading import DamagedRecords, UncheckedSegment
from quorate.storage.segment import Segment
from quorate.storage.segment_checks import SegmentReport
from quorate.storage.segment_checksums import write_checksums
from quorate.storage.segment_repair import RepairPlan, repair

logger = logging.getLogger(__name__)

CONDITION = "log-damaged"
_STEP_BYTES = 2 << 20
_RETRY_AFTER_S = 30.0
_NAMED = 5

#: Called with how much was read, to wait as long as that should have taken.
Pace = Callable[[int], Awaitable[None]]
#: Which segment of which partition.
_Key = tuple[Partition, Offset]


class LogIntegrity:
    def __init__(
        self,
        node_id: NodeId,
        disk: Disk,
        conditions: Conditions,
        *,
        loop: asyncio.AbstractEventLoop,
        executor: Executor,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._node_id = node_id
        self._disk = disk
        self._conditions = conditions
        self._loop = loop
        self._executor = executor
        self._tasks = TaskScope(loop, on_failure)
        #: Readers who wait for a segment.
        self._waiting: dict[_Key, asyncio.Future[None]] = {}
        self._wanted: dict[Partition, dict[Offset, None]] = {}
        self._looked_after: set[Partition] = set()
        self._retries: dict[Partition, asyncio.TimerHandle] = {}
        self._stopped = False
        #: Since the start of the node.
        self.damaged_found = 0
        self.repaired = 0

    def connect(
        self,
        ask: AskReplica,
        replicas_of: Callable[[Partition], Sequence[NodeId]],
        resign: Callable[[Partition], Awaitable[None]],
    ) -> None:
        """``replicas_of`` names the other replicas, those in sync first; ``resign`` has one of them lead, if it can."""
        self._ask = ask
        self._replicas_of = replicas_of
        self._resign = resign

    async def stop(self) -> None:
        self._stopped = True
        for timer in self._retries.values():
            timer.cancel()
        await self._tasks.close()
        for waiting in self._waiting.values():
            waiting.cancel()

    def sound_again(
        self, partition: Partition, error: UncheckedSegment | DamagedRecords
    ) -> "asyncio.Future[None] | None":
        key = partition, error.segment.base_offset
        if isinstance(error, UncheckedSegment):
            self.look_after(partition, error.segment.base_offset)
        elif key not in self._waiting:
            return None
        return self._waiting.get(key)

    def look_after(self, partition: Partition, base_offset: Offset) -> None:
        """Check the segment, unless that is under way, and repair it if need be."""
        if self._stopped or partition.failure is not None or (partition, base_offset) in self._waiting:
            return
        self._waiting[partition, base_offset] = self._loop.create_future()
        self._wanted.setdefault(partition, {})[base_offset] = None
        if partition not in self._looked_after:
            self._looked_after.add(partition)
            self._tasks.spawn(self._look_after(partition))

    async def _look_after(self, partition: Partition) -> None:
        try:
            await self._settle_all(partition, self._wanted[partition])
        finally:
            self._looked_after.discard(partition)
            for base_offset in self._wanted.pop(partition, {}):
                self._release(partition, base_offset)

    async def _settle_all(self, partition: Partition, wanted: dict[Offset, None]) -> None:
        while wanted and partition.failure is None:
            base_offset = next(iter(wanted))
            try:
                await self._settle(partition, base_offset)
            except (KafkaError, OSError) as error:
                logger.error("segment not checked partition=%s segment=%s error=%s", partition, base_offset, error)
                self._retry_later(partition, base_offset)
            finally:
                wanted.pop(base_offset, None)
                self._release(partition, base_offset)
                if partition.failure is None and not self._stopped:
                    partition.looked_after()

    def _release(self, partition: Partition, base_offset: Offset) -> None:
        waiting = self._waiting.pop((partition, base_offset), None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # One segment.

    async def _settle(self, partition: Partition, base_offset: Offset) -> None:
        segment = self._segment(partition, base_offset)
        report = None if segment is None else await self.check(partition, segment)
        if report is None or report.is_sound:
            self._repaired_if_reported(partition)
            return
        self._tell(partition, base_offset, report)
        if report.indexes_are_damaged or report.transactions_are_damaged:
            is_made = await self._repair(partition, base_offset, report, with_log=False)
            if is_made and not report.lacks_checksums:
                self.repaired += 1
                logger.info("index repaired partition=%s segment=%s", partition, base_offset)
        if report.damage:
            await self._repair_log(partition, base_offset, report)

    async def check(self, partition: Partition, segment: Segment, pace: Pace | None = None) -> SegmentReport | None:
        """Check the segment in worker threads; None where the log has changed so that nothing can be said."""
        check = partition.log.begin_check(segment)
        while check.report is None:
            read_bytes = await self._loop.run_in_executor(self._executor, check.step, _STEP_BYTES)
            if pace is not None:
                await pace(read_bytes)
        if partition.failure is not None or not partition.log.note_check(check):
            return None
        return check.report

    async def sum_up(self, partition: Partition, segment: Segment) -> None:
        """Store the checksums of a sound segment that has none."""
        summed = partition.log.begin_summing(segment)
        if summed is not None:
            await self._loop.run_in_executor(self._executor, write_checksums, self._disk, summed)
            if partition.failure is None:
                partition.log.note_summed(segment)

    async def _repair_log(self, partition: Partition, base_offset: Offset, report: SegmentReport) -> None:
        replicas = self._replicas_of(partition)
        if isinstance(partition.role, Leading) and replicas:
            await self._resign(partition)
        is_repaired = bool(replicas) and await self._repair(partition, base_offset, report, with_log=True)
        if is_repaired:
            segment = self._segment(partition, base_offset)
            again = None if segment is None else await self.check(partition, segment)
            is_repaired = again is None or again.is_sound
        if is_repaired:
            self.repaired += len(report.damage)
            logger.info("log repaired partition=%s %s", partition, _ranges(report.damage))
            self._repaired_if_reported(partition)
        else:
            self._give_up(partition, base_offset)

    async def _repair(
        self, partition: Partition, base_offset: Offset, report: SegmentReport, *, with_log: bool
    ) -> bool:
        segment = self._segment(partition, base_offset)
        if segment is None or partition.failure is not None:
            return False
        plan = partition.log.plan_repair(segment, report)
        if not with_log:
            return await self._make_anew(partition, plan, None)
        replacements = Replacements(self._disk, plan, loop=self._loop, executor=self._executor)
        try:
            if not await replacements.fetch(partition, self._replicas_of(partition), self._ask):
                return False
            return await self._make_anew(partition, plan, replacements)
        finally:
            await asyncio.shield(replacements.discard())

    async def _make_anew(self, partition: Partition, plan: RepairPlan, replacements: Replacements | None) -> bool:
        parts = None if replacements is None else replacements.parts
        repaired = await self._loop.run_in_executor(self._executor, repair, self._disk, plan, parts)
        return partition.failure is None and partition.log.install_repair(repaired)

    def _segment(self, partition: Partition, base_offset: Offset) -> Segment | None:
        return next((each for each in partition.log.stored_segments if each.base_offset == base_offset), None)

    # What operators are told.

    def _tell(self, partition: Partition, base_offset: Offset, report: SegmentReport) -> None:
        if not report.lacks_checksums and (report.indexes_are_damaged or report.transactions_are_damaged):
            self.damaged_found += 1
            logger.error("index damaged partition=%s segment=%s", partition, base_offset)
        if not report.damage:
            return
        self.damaged_found += len(report.damage)
        logger.error("log damaged partition=%s segment=%s %s", partition, base_offset, _ranges(report.damage))
        self._report(partition, "they are being repaired from another replica")

    def _give_up(self, partition: Partition, base_offset: Offset) -> None:
        logger.error(
            "log not repaired partition=%s segment=%s reason='no other replica has the records' retry_after_s=%s",
            partition,
            base_offset,
            round(_RETRY_AFTER_S),
        )
        self._report(
            partition,
            "no other replica has them, so they are answered with CORRUPT_MESSAGE until one has, or until they are "
            "deleted (kafka-delete-records)",
        )
        self._retry_later(partition, base_offset)

    def _retry_later(self, partition: Partition, base_offset: Offset) -> None:
        timer = self._retries.pop(partition, None)
        if timer is not None:
            timer.cancel()
        if not self._stopped:
            self._retries[partition] = self._loop.call_later(_RETRY_AFTER_S, self._retry, partition, base_offset)

    def _retry(self, partition: Partition, base_offset: Offset) -> None:
        self._retries.pop(partition, None)
        if partition.failure is not None or self._segment(partition, base_offset) is None:
            self._conditions.clear(CONDITION, str(partition))
        for each in [each.base_offset for each in partition.log.stored_segments if each.damage]:
            self.look_after(partition, each)
        self.look_after(partition, base_offset)

    def _report(self, partition: Partition, what: str) -> None:
        damage = partition.log.damage
        sentence = f"records of {partition} on the disk of node {self._node_id} are damaged ({_ranges(damage)}); {what}"
        self._conditions.set(Condition(kind=CONDITION, subject=str(partition), sentence=sentence))

    def _repaired_if_reported(self, partition: Partition) -> None:
        if not partition.log.damage:
            self._conditions.clear(CONDITION, str(partition))


def _ranges(damage: Sequence[DamagedRange]) -> str:
    named = ",".join(f"{each.first_offset}-{each.end_offset - 1}" for each in damage[:_NAMED])
    return f"offsets={named}" + (",…" if len(damage) > _NAMED else "")
