import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.unit.storage.batches import (
    DIRECTORY,
    NOW_MS,
    PRODUCER,
    append,
    append_values,
    batch_of,
    open_log,
    produced,
    segment_names,
    values_in,
)

SIZE_BYTES = len(batch_of(b"x"))


def log_of(disk: SimulatedDisk, *ages_ms: int, **settings: int) -> PartitionLog:
    """Segments of two records; each record is as old as given."""
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE_BYTES, **settings))  # type: ignore[arg-type]
    for age_ms in ages_ms:
        append(log, batch_of(b"x", timestamps=[NOW_MS - age_ms]))
    return log


def test_segments_go_when_their_newest_record_is_too_old(disk: SimulatedDisk) -> None:
    log = log_of(disk, 500, 400, 350, 301, 300, 100, 0, retention_ms=300)

    assert log.apply_retention(NOW_MS) == [0, 2]
    assert log.log_start_offset == 4
    assert segment_names(disk) == [4, 6]
    assert log.apply_retention(NOW_MS) == []


def test_a_full_disk_lets_the_log_as_it_is_until_there_is_room(disk: SimulatedDisk) -> None:
    log = log_of(disk, 500, 400, 350, 301, 0, retention_ms=300)
    room, disk.free_bytes = disk.free_bytes, 0

    with pytest.raises(KafkaError) as refused:
        log.apply_retention(NOW_MS)

    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.is_usable, log.log_start_offset, len(values_in(log))) == (True, 0, 5)
    disk.free_bytes = room
    assert log.apply_retention(NOW_MS) == [0, 2]


def test_a_young_record_keeps_its_segment_and_all_after_it(disk: SimulatedDisk) -> None:
    log = log_of(disk, 500, 100, 500, 500, 0, retention_ms=300)

    assert log.apply_retention(NOW_MS) == []


def test_an_active_segment_that_is_too_old_is_rolled_and_goes_too(disk: SimulatedDisk) -> None:
    log = log_of(disk, 500, 400, 350, retention_ms=300)

    assert log.apply_retention(NOW_MS) == [0, 2]
    assert (log.log_start_offset, log.log_end_offset, values_in(log)) == (3, 3, [])
    assert append(log, batch_of(b"y")).base_offset == 3


def test_segments_go_while_the_log_is_larger_than_it_should_be(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[0] * 9, retention_bytes=5 * SIZE_BYTES, retention_ms=-1)

    assert log.apply_retention(NOW_MS) == [0, 2]
    assert log.size_bytes == 5 * SIZE_BYTES


def test_uncommitted_segments_stay(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[500] * 6, retention_ms=300)

    assert log.apply_retention(NOW_MS, up_to_offset=Offset(3)) == [0]


def test_a_log_that_is_only_compacted_is_not_deleted(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[500] * 6, retention_ms=300)
    log.update_config(LogConfig(retention_ms=300, cleanup_policy=frozenset({"compact"})))

    assert log.apply_retention(NOW_MS) == []


def test_records_without_a_time_are_not_taken_for_old_ones(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(retention_ms=300))
    append(log, batch_of(b"x", timestamps=[-1]))

    assert log.apply_retention(NOW_MS) == []


def test_the_start_of_the_log_never_moves_back(disk: SimulatedDisk) -> None:
    for steps in range(1, 30):
        log = log_of(disk, *[500] * 6, retention_ms=300)
        log.sync()
        start = log.log_start_offset
        disk.steps_until_power_cut = steps
        try:
            log.apply_retention(NOW_MS)
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        again = open_log(disk)
        assert again.log_start_offset >= start
        assert len(values_in(again)) == again.log_end_offset - again.log_start_offset


def test_deleted_records_are_gone_and_their_whole_segments_too(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[0] * 6)

    log.delete_records_before(Offset(3))

    assert log.log_start_offset == 3
    assert segment_names(disk) == [2, 4]
    assert len(values_in(log)) == 3
    with pytest.raises(KafkaError) as failure:
        log.read(Offset(2), max_bytes=100, up_to_offset=Offset(6))
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_deletion_of_records_survives_a_crash(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[0] * 6)
    log.sync()

    log.delete_records_before(Offset(3))
    disk.crash()

    assert open_log(disk).log_start_offset == 3


def test_records_that_were_deleted_but_not_synced_leave_an_empty_log_at_its_new_start(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, *[b"x"] * 3)
    log.delete_records_before(Offset(3))
    disk.open(f"{DIRECTORY}/00000000000000000000.log").truncate(SIZE_BYTES)

    log = open_log(disk)

    assert (log.log_start_offset, log.log_end_offset) == (3, 3)


def test_deletions_stop_at_the_ends_of_the_log(disk: SimulatedDisk) -> None:
    log = log_of(disk, *[0] * 4)

    log.delete_records_before(Offset(4))
    log.delete_records_before(Offset(1))
    assert log.log_start_offset == 4

    with pytest.raises(KafkaError) as failure:
        log.delete_records_before(Offset(5))
    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_producer_is_known_after_its_records_are_deleted(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, produced(0))
    append_values(log, b"x")

    log.delete_records_before(Offset(2))

    assert append(log, produced(1)).base_offset == 2
    log.expire_producers(NOW_MS)
    log.expire_producers(NOW_MS + 86_400_000)
    assert log.producers.get(PRODUCER) is None
