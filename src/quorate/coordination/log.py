"""The log of a coordinator's partition: read from its start once, then only appended to."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from functools import partial

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.records.batch import check_crc, iterate_batches
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_records
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partition import Partition

#: Read and replayed in one go; in between, the loop serves others.
_CHUNK_BYTES = 256 * 1024

#: Told the error that keeps the records out of the log, or None once they are committed.
Appended = Callable[[ErrorCode | None], None]
Entry = tuple[bytes, bytes | None]


class CoordinatorLog:
    def __init__(self, partition: Partition, loop: asyncio.AbstractEventLoop, executor: Executor) -> None:
        self._partition = partition
        self._loop = loop
        self._executor = executor

    @property
    def is_empty(self) -> bool:
        return self._partition.log.log_start_offset == self._partition.high_watermark

    def when_committed(self, done: Appended) -> None:
        """All that a new leader has will be committed: it never takes back what is in its log."""
        end_offset = self._partition.log.log_end_offset
        self._partition.when_committed(end_offset, lambda error: done(_failure(error)))

    async def replay(self, replay: Callable[[bytes | memoryview | None, bytes | memoryview | None], None]) -> int:
        """Hand over the key and value of every committed record; returns how many there are."""
        log, end_offset = self._partition.log, self._partition.high_watermark
        offset = log.log_start_offset
        replayed = 0
        while offset < end_offset:
            piece = await when_sound(
                self._partition,
                partial(log.read, offset, max_bytes=_CHUNK_BYTES, up_to_offset=end_offset, minimum_one_batch=True),
            )
            data = await self._loop.run_in_executor(self._executor, piece.read)
            if not data:
                break
            for position, header in iterate_batches(data, strict=True):
                check_crc(data, position, header)
                offset = header.next_offset
                if header.is_control:
                    continue
                for record in iterate_records(data, position):
                    replay(record.key, record.value)
                    replayed += 1
        return replayed

    def append(self, entries: Iterable[Entry], now_ms: int, done: Appended) -> None:
        """Append the keys and values as one batch, and say when all replicas that are in sync have it."""
        batch = build_batch(Record(Offset(index), now_ms, key, value) for index, (key, value) in enumerate(entries))
        try:
            info = self._partition.append(memoryview(bytearray(batch)), now_ms, acks_all=True)
        except KafkaError as error:
            done(error.code)
            return
        self._partition.when_committed(Offset(info.last_offset + 1), lambda error: done(_failure(error)))


def _failure(error: KafkaError | None) -> ErrorCode | None:
    # With this one fewer replicas than asked for have it, but all that are in sync: it is in the log for good.
    if error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return None
    return error.code
