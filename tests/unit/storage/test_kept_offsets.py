"""Appending batches that keep their offsets: each must begin where the log ends."""

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import read_batches, read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import NOW_MS, PRODUCER, open_log, records_in

EPOCH = LeaderEpoch(3)


def restored(*offsets: int, base: int, end: int, producer_id: ProducerId = PRODUCER) -> bytes:
    """A batch from ``base`` up to, not including, ``end``, with records at these offsets only."""
    return build_batch(
        [Record(Offset(offset), NOW_MS, b"key", str(offset).encode()) for offset in offsets],
        base_offset=Offset(base),
        last_offset_delta=end - 1 - base,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(0),
        base_sequence=base % 2**31,
    )


def append(log: PartitionLog, batch: bytes) -> AppendInfo:
    return log.append_as_leader(
        memoryview(bytearray(batch)),
        [each for _, each in read_batches(batch)],
        leader_epoch=EPOCH,
        now_ms=NOW_MS,
        keep_offsets=True,
    )


def test_records_stand_at_their_offsets_with_the_holes_between_them(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    append(log, restored(base=0, end=100))
    info = append(log, restored(100, 104, base=100, end=110))
    append(log, restored(110, 111, base=110, end=112))

    assert (info.base_offset, info.last_offset, log.log_end_offset) == (100, 109, 112)
    assert [record.offset for record in records_in(log)] == [100, 104, 110, 111]


def test_log_is_found_again_with_its_holes(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, restored(base=0, end=7))
    append(log, restored(7, base=7, end=20))
    log.sync()
    disk.crash()

    reopened = open_log(disk)

    assert reopened.log_end_offset == 20
    assert [record.offset for record in records_in(reopened)] == [7]
    assert append(reopened, restored(7, base=7, end=20)).duplicate


def test_leaders_epoch_is_written_into_the_batch(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, restored(0, base=0, end=3))

    stored = log.read(Offset(0), max_bytes=1000, up_to_offset=Offset(3)).read()

    assert read_header(stored).partition_leader_epoch == EPOCH


@pytest.mark.parametrize("base", [9, 11])
def test_batch_that_does_not_begin_at_the_end_is_refused_although_its_producer_is_unknown(
    disk: SimulatedDisk, base: int
) -> None:
    log = open_log(disk)
    append(log, restored(0, base=0, end=10))

    with pytest.raises(KafkaError) as caught:
        append(log, restored(base, base=base, end=base + 1, producer_id=ProducerId(PRODUCER + 1)))

    assert caught.value.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 10


def test_repeated_batch_is_recognised(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, restored(0, base=0, end=10))
    append(log, restored(10, base=10, end=30))

    repeated = append(log, restored(10, base=10, end=30))

    assert (repeated.duplicate, repeated.base_offset, log.log_end_offset) == (True, 10, 30)


def test_offsets_beyond_what_one_segment_can_count_go_to_further_segments(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    span = 2**28
    for number in range(20):
        append(log, restored(base=number * span, end=(number + 1) * span))
    append(log, restored(20 * span, base=20 * span, end=20 * span + 1))

    assert log.log_end_offset == 20 * span + 1
    log.delete_records_before(Offset(20 * span))
    assert [record.offset for record in records_in(log)] == [20 * span]
