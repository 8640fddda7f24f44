from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.batch import Compression
from quorate.storage.config import LogConfig
from quorate.storage.file_names import parent_of
from quorate.storage.log import PartitionLog
from quorate.storage.segment import MaxTimestamp
from tests.log_times import offset_for_timestamp, offset_of_max_timestamp
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import DIRECTORY, NOW_MS, append, batch_of, open_log


@pytest.fixture(params=["open", "reopened"])
def log(disk: SimulatedDisk, request: pytest.FixtureRequest) -> PartitionLog:
    """Records 0 to 8 in three segments, with times that go back and forth."""
    log = open_log(disk, LogConfig(segment_bytes=260, index_interval_bytes=0))
    for times, epoch in [([10, 30, 20], 1), ([25, 60, 40], 1), ([50, 55, 60], 2)]:
        timestamps = [NOW_MS + time for time in times]
        append(log, batch_of(b"x", b"y", b"z", timestamps=timestamps), epoch=LeaderEpoch(epoch))
        append(log, batch_of(b"w", timestamps=[NOW_MS + 1]), epoch=LeaderEpoch(epoch))
    if request.param == "reopened":
        log.close()
        log = open_log(disk)
    return log


@pytest.mark.parametrize(
    ("time", "offset", "found_time"), [(0, 0, 10), (10, 0, 10), (11, 1, 30), (30, 1, 30), (31, 5, 60), (60, 5, 60)]
)
def test_the_first_record_at_or_after_a_time_is_found(
    log: PartitionLog, time: int, offset: int, found_time: int
) -> None:
    found = offset_for_timestamp(log, NOW_MS + time)

    assert found == (offset, NOW_MS + found_time, 1)


def test_no_record_is_found_after_the_last_time(log: PartitionLog) -> None:
    assert offset_for_timestamp(log, NOW_MS + 61) is None


def test_the_first_record_with_the_highest_time_is_found(log: PartitionLog) -> None:
    assert offset_of_max_timestamp(log) == (5, NOW_MS + 60, 1)


def test_deleted_records_are_not_found(log: PartitionLog) -> None:
    log.delete_records_before(Offset(6))

    assert offset_for_timestamp(log, NOW_MS) == (6, NOW_MS + 40, 1)
    assert offset_of_max_timestamp(log) == (10, NOW_MS + 60, 2)


def test_records_in_compressed_batches_are_found(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    timestamps = [NOW_MS, NOW_MS + 5, NOW_MS + 9]
    append(log, batch_of(b"x", b"y", b"z", timestamps=timestamps, compression=Compression.ZSTD))

    found = offset_for_timestamp(log, NOW_MS + 4)

    assert found is not None
    assert found.offset == 1


def test_an_empty_log_has_no_times(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    assert offset_for_timestamp(log, 0) is None
    assert offset_of_max_timestamp(log) is None


@given(times=st.lists(st.integers(0, 20), min_size=1, max_size=60), wanted=st.integers(0, 20), ends=st.integers(0, 60))
def test_few_batches_stand_before_the_first_that_reaches_a_time(times: list[int], wanted: int, ends: int) -> None:
    """Times may stand still or go back for a gigabyte: no batch of it is looked at for a time behind it."""
    disk = SimulatedDisk(Random(1))
    disk.make_directory(parent_of(DIRECTORY))
    size = len(batch_of(b"x"))
    log = open_log(disk, LogConfig(index_interval_bytes=2 * size))
    for time in times:
        append(log, batch_of(b"x", timestamps=[NOW_MS + time]))
    log.truncate_to(Offset(max(1, min(ends, len(times)))))
    (segment,) = log.stored_segments
    left = times[: log.log_end_offset]

    assert segment.max_timestamp() == MaxTimestamp(NOW_MS + max(left), Offset(left.index(max(left))))
    position = segment.position_for_time(NOW_MS + wanted)
    reaching = next((offset for offset, time in enumerate(left) if time >= wanted), len(left))
    assert reaching * size - 7 * size <= position <= reaching * size
