"""The log of a shard: its partition of an internal topic, read from the start once, then only appended to."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from quorate.coordination.core.effects import AppendToLog
from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerId
from quorate.records.batch import BatchHeader, check_crc, iterate_batches
from quorate.records.builder import build_batch
from quorate.records.control import marker_of_batch
from quorate.records.record import Record, iterate_records
from quorate.replication.integrity.sound_reads import when_sound
from quorate.replication.partition import Partition

RecordT = TypeVar("RecordT")
RecordT_contra = TypeVar("RecordT_contra", contravariant=True)

#: Read and replayed in one go; in between, the loop serves others.
_CHUNK_BYTES = 256 * 1024

#: Told the error that keeps the records out of the log, or None once they are committed.
Appended = Callable[[ErrorCode | None], None]


class RecordCodec(Protocol[RecordT]):
    """Kafka's bytes of a shard's records: the ``records`` module of groups or of transactions."""

    def encode_key(self, record: RecordT, /) -> bytes: ...

    def encode_value(self, record: RecordT, /) -> bytes | None: ...

    def decode_record(self, key: bytes | memoryview, value: bytes | memoryview | None, /) -> RecordT | None:
        """None for a kind of record that is not kept here."""
        ...


class Replaying(Protocol[RecordT_contra]):
    """What is built from the records of a log."""

    def replay(self, record: RecordT_contra, producer_id: ProducerId, /) -> None:
        """``producer_id`` names the transaction that the record was written in."""
        ...

    def replay_end(self, producer_id: ProducerId, /, *, is_commit: bool) -> None: ...


class CoordinatorLog(Generic[RecordT]):
    def __init__(
        self, partition: Partition, codec: RecordCodec[RecordT], loop: asyncio.AbstractEventLoop, executor: Executor
    ) -> None:
        #: The epoch in which this node leads the partition. With the next one a coordinator starts anew.
        self.leader_epoch: LeaderEpoch = partition.leader_epoch
        self._partition = partition
        self._codec = codec
        self._loop = loop
        self._executor = executor

    def __str__(self) -> str:
        return str(self._partition)

    @property
    def is_empty(self) -> bool:
        return self._partition.log.log_start_offset == self._partition.high_watermark

    def when_committed(self, done: Appended) -> None:
        """Say when all that is in the log now is committed: a leader never takes back what is in its log."""
        end_offset = self._partition.log.log_end_offset
        self._partition.when_committed(end_offset, lambda error: done(_failure(error)))

    async def replay(self, shard: Replaying[RecordT]) -> int:
        """Hand over every committed record and every end of a transaction; returns how many records there are."""
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
                replayed += self._replay_batch(data, position, header, shard)
                offset = header.next_offset
        return replayed

    def _replay_batch(self, data: bytes, position: int, header: BatchHeader, shard: Replaying[RecordT]) -> int:
        if header.is_control:
            marker = marker_of_batch(data, position)
            if marker is not None:
                shard.replay_end(header.producer_id, is_commit=marker.is_commit)
            return 0
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        replayed = 0
        for entry in iterate_records(data, position):
            if entry.key is None:
                raise CorruptCoordinatorRecord(f"record without a key at offset {entry.offset}")
            record = self._codec.decode_record(entry.key, entry.value)
            if record is not None:
                shard.replay(record, producer_id)
                replayed += 1
        return replayed

    def append(self, append: AppendToLog[RecordT, Any], now_ms: int, done: Appended) -> None:
        """Append the records as one batch, or the marker, and say when all replicas that are in sync have it."""
        try:
            if append.end is not None:
                info = self._partition.append_marker(append.end, now_ms)
            else:
                info = self._partition.append(self._batch_of(append, now_ms), now_ms, acks_all=True)
        except KafkaError as error:
            done(error.code)
            return
        self._partition.when_committed(Offset(info.last_offset + 1), lambda error: done(_failure(error)))

    def _batch_of(self, append: AppendToLog[RecordT, Any], now_ms: int) -> memoryview:
        encode_key, encode_value = self._codec.encode_key, self._codec.encode_value
        producer_id, producer_epoch = append.transaction or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        batch = build_batch(
            (
                Record(Offset(index), now_ms, encode_key(record), encode_value(record))
                for index, record in enumerate(append.records)
            ),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            is_transactional=append.transaction is not None,
        )
        return memoryview(bytearray(batch))


def _failure(error: KafkaError | None) -> ErrorCode | None:
    # Of the error codes, this one is a success: fewer replicas than asked for have it, but all that are in sync.
    if error is None or error.code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
        return None
    return error.code
