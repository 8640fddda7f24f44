"""Batches for the tests of the log, and short ways to append and read them."""

from collections.abc import Sequence

from quorate.kernel.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import BatchHeader, Compression, iterate_batches, read_batches, read_header
from quorate.records.builder import FIRST_OFFSET, build_batch
from quorate.records.record import Record, iterate_records
from quorate.storage.appending import AppendInfo
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import SimulatedDisk

DIRECTORY = "/data/topic-0"
NOW_MS = 1_700_000_000_000
EPOCH = LeaderEpoch(1)
PRODUCER = ProducerId(7)


def batch_of(
    *values: bytes | None,
    key: bytes = b"key",
    timestamps: Sequence[int] = (),
    base_offset: Offset = FIRST_OFFSET,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = -1,
    compression: Compression = Compression.NONE,
) -> bytes:
    records = [
        Record(
            offset=Offset(base_offset + delta),
            timestamp=timestamps[delta] if timestamps else NOW_MS,
            key=key,
            value=value,
        )
        for delta, value in enumerate(values)
    ]
    return build_batch(
        records,
        base_offset=base_offset,
        leader_epoch=EPOCH,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
    )


def produced(sequence: int, count: int = 1, *, epoch: int = 0, producer_id: ProducerId = PRODUCER) -> bytes:
    """A batch of an idempotent producer."""
    return batch_of(
        *[b"value"] * count, producer_id=producer_id, producer_epoch=ProducerEpoch(epoch), base_sequence=sequence
    )


def header_of(batch: bytes) -> BatchHeader:
    return read_header(batch)


def open_log(disk: SimulatedDisk, config: LogConfig | None = None) -> PartitionLog:
    return PartitionLog.open(disk, DIRECTORY, config or LogConfig())


def append(log: PartitionLog, batch: bytes, *, epoch: LeaderEpoch = EPOCH, now_ms: int = NOW_MS) -> AppendInfo:
    return log.append_as_leader(
        memoryview(bytearray(batch)), [each for _, each in read_batches(batch)], leader_epoch=epoch, now_ms=now_ms
    )


def append_values(log: PartitionLog, *values: bytes | None) -> None:
    """One batch for each value."""
    for value in values:
        append(log, batch_of(value))


def records_in(log: PartitionLog) -> list[Record]:
    """All records of the log, as a consumer reads them."""
    records: list[Record] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes=1, up_to_offset=log.log_end_offset, minimum_one_batch=True).read()
        if not content:
            break
        for position, header in iterate_batches(content, strict=True):
            records += iterate_records(content, position)
            offset = header.next_offset
    return [record for record in records if record.offset >= log.log_start_offset]


def values_in(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in records_in(log)]


def segment_names(disk: SimulatedDisk) -> list[int]:
    """The base offsets of the segments on disk."""
    return [int(name[:20]) for name in disk.list_directory(DIRECTORY) if name.endswith(".log")]
