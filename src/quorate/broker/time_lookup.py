"""Which offset belongs to a time. The log says where to look; a worker looks there, one batch at a time.

What it costs was chosen by whoever wrote the records, so the loop does nothing of it but the search of the indexes,
in slices.
"""

import asyncio

from quorate.broker.services import Services
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.replication.leading import require_leading
from quorate.replication.partition import Partition
from quorate.storage.segment import NO_TIMESTAMP
from quorate.storage.timestamps import TimeProbe, TimestampedOffset


class TimeLookup:
    def __init__(self, services: Services, partition: Partition, deadline_s: float | None) -> None:
        """From the deadline on, in the loop's time, what is not found yet is given up."""
        self._services = services
        self._partition = partition
        self._reign = partition.leader_epoch
        self._deadline_s = deadline_s

    async def find(self, timestamp_ms: int | None) -> TimestampedOffset | None:
        """The first record at or after the time, or without one the first that carries the highest of the log.

        Raises NOT_LEADER_OR_FOLLOWER where the lead was lost meanwhile: nothing that was read counts then.
        """
        wanted = await self._highest() if timestamp_ms is None else timestamp_ms
        if wanted == NO_TIMESTAMP:
            return None
        try:
            found = await self._search(wanted)
        except (KafkaError, OSError) as error:
            self._require_reign()
            if isinstance(error, OSError):
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
            raise
        self._require_reign()
        return found

    async def _highest(self) -> int:
        highest = NO_TIMESTAMP
        async for timestamp_ms in self._services.turns.sliced(self._partition.log.highest_timestamps()):
            highest = max(highest, timestamp_ms)
        return highest

    async def _search(self, timestamp_ms: int) -> TimestampedOffset | None:
        async for probe in self._services.turns.sliced(self._partition.log.probes_for_timestamp(timestamp_ms)):
            found = None if probe is None else await self._look(probe)
            if found is not None:
                return found
        return None

    async def _look(self, probe: TimeProbe) -> TimestampedOffset | None:
        found = None
        while found is None and not probe.is_over:
            if self._deadline_s is not None and asyncio.get_running_loop().time() >= self._deadline_s:
                raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)
            found = await self._services.record_opening.step(probe)
        return found

    def _require_reign(self) -> None:
        partition = self._partition
        require_leading(partition)
        if partition.leader_epoch != self._reign:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
