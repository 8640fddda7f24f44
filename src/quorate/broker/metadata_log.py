"""The metadata log of a node that is a cluster by itself: one partition log, replayed at the start."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from quorate.kernel.clock import Clock
from quorate.kernel.disk import Disk
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.metadata.image import MetadataImage
from quorate.metadata.records import AnyRecord, decode_record, encode_record
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from quorate.storage.config import NO_LIMIT, LogConfig
from quorate.storage.log import PartitionLog

_DIRECTORY = "__cluster_metadata-0"
_CONFIG = LogConfig(retention_ms=NO_LIMIT, max_message_bytes=2**31 - 1)
_READ_BYTES = 1 << 20


class MetadataLog:
    def __init__(
        self, disk: Disk, data_dir: str, *, clock: Clock, loop: asyncio.AbstractEventLoop, executor: Executor
    ) -> None:
        self._clock = clock
        self._loop = loop
        self._executor = executor
        self._log = PartitionLog.open(disk, f"{data_dir}/{_DIRECTORY}", _CONFIG)

    def replay(self) -> MetadataImage:
        """The image that all records in the log add up to."""
        image = MetadataImage()
        offset = self._log.log_start_offset
        while offset < self._log.log_end_offset:
            piece = self._log.read(
                offset, max_bytes=_READ_BYTES, up_to_offset=self._log.log_end_offset, minimum_one_batch=True
            )
            data = piece.read()
            for position, header in iterate_batches(data, strict=True):
                records = [decode_record(record.value or b"") for record in iterate_records(data, position)]
                offset = Offset(header.next_offset)
                image, _ = image.replay(records, offset)
        return image

    async def append(self, records: Sequence[AnyRecord]) -> Offset:
        """Make the records durable; returns the end of the log after them."""
        now_ms = self._clock.now_ms()
        batch = build_batch(
            [
                Record(offset=Offset(index), timestamp=now_ms, key=None, value=encode_record(record), headers=())
                for index, record in enumerate(records)
            ]
        )
        info = self._log.append_as_leader(memoryview(bytearray(batch)), leader_epoch=LeaderEpoch(0), now_ms=now_ms)
        await self._loop.run_in_executor(self._executor, self._log.sync)
        return Offset(info.last_offset + 1)

    def close(self) -> None:
        self._log.close()
