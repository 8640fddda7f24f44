import os
from pathlib import Path
from random import Random

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.records.batch import iterate_batches
from quorate.storage.cleaner import clean
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from quorate.storage.os_disk import OsDisk
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import NOW_MS, append, append_values, batch_of, open_log

SIZE_BYTES = len(batch_of(b"x"))


def offsets_of(content: bytes) -> list[int]:
    """The base offsets of the batches; fails unless they are whole."""
    return [header.base_offset for _, header in iterate_batches(content, strict=True)]


def read_offsets(
    log: PartitionLog, offset: int, *, max_bytes: int = 1 << 20, up_to: int | None = None, at_least_one: bool = False
) -> list[int]:
    up_to_offset = log.log_end_offset if up_to is None else Offset(up_to)
    found = log.read(Offset(offset), max_bytes=max_bytes, up_to_offset=up_to_offset, minimum_one_batch=at_least_one)
    content = found.read()
    assert len(content) == found.length
    return offsets_of(content)


@pytest.fixture(params=["tail", "reopened"])
def log(disk: SimulatedDisk, request: pytest.FixtureRequest) -> PartitionLog:
    """Ten batches of one record, in memory as they were appended, or found through the index and the headers."""
    log = open_log(disk, LogConfig(index_interval_bytes=SIZE_BYTES))
    append_values(log, *[b"x"] * 10)
    if request.param == "reopened":
        log.close()
        log = open_log(disk)
    return log


def test_a_read_starts_with_the_batch_that_holds_the_offset(log: PartitionLog) -> None:
    assert read_offsets(log, 0) == list(range(10))
    assert read_offsets(log, 7) == [7, 8, 9]


def test_a_read_never_goes_beyond_the_offset_that_it_may_see(log: PartitionLog) -> None:
    assert read_offsets(log, 3, up_to=6) == [3, 4, 5]
    assert read_offsets(log, 3, up_to=3) == []
    assert read_offsets(log, 3, up_to=1) == []


def test_a_read_ends_with_a_whole_batch_within_max_bytes(log: PartitionLog) -> None:
    assert read_offsets(log, 2, max_bytes=3 * SIZE_BYTES) == [2, 3, 4]
    assert read_offsets(log, 2, max_bytes=3 * SIZE_BYTES - 1) == [2, 3]
    assert read_offsets(log, 8, max_bytes=3 * SIZE_BYTES) == [8, 9]


def test_the_first_batch_is_read_even_if_it_is_too_large_when_asked_for(log: PartitionLog) -> None:
    assert read_offsets(log, 4, max_bytes=1, at_least_one=True) == [4]
    assert read_offsets(log, 4, max_bytes=1) == []
    assert read_offsets(log, 4, max_bytes=1, up_to=4, at_least_one=True) == []


def test_the_end_of_the_log_is_readable_and_empty(log: PartitionLog) -> None:
    assert read_offsets(log, 10) == []


@pytest.mark.parametrize("offset", [-1, 11])
def test_offsets_outside_of_the_log_are_out_of_range(log: PartitionLog, offset: int) -> None:
    with pytest.raises(KafkaError) as failure:
        read_offsets(log, offset)

    assert failure.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_batch_that_reaches_beyond_the_visible_offset_is_not_read(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, batch_of(b"a", b"b", b"c"))

    assert read_offsets(log, 0, up_to=2) == []
    assert read_offsets(log, 2) == [0]


def test_a_read_ends_with_its_segment_and_the_next_one_goes_on(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=3 * SIZE_BYTES))
    append_values(log, *[b"x"] * 8)

    assert [read_offsets(log, offset) for offset in (1, 3, 6)] == [[1, 2], [3, 4, 5], [6, 7]]


def test_a_slice_stays_readable_when_its_segment_is_deleted(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE_BYTES))
    append_values(log, *[b"x"] * 6)
    found = log.read(Offset(0), max_bytes=1 << 20, up_to_offset=Offset(6))

    log.delete_records_before(Offset(4))
    disk.sync_directory("/data/topic-0")

    assert offsets_of(found.read()) == [0, 1]


def test_a_slice_stays_readable_when_its_segment_is_compacted(disk: SimulatedDisk) -> None:
    config = LogConfig(
        segment_bytes=3 * SIZE_BYTES, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.0
    )
    log = open_log(disk, config)
    append_values(log, *[b"x"] * 7)
    log.sync()
    found = log.read(Offset(0), max_bytes=1 << 20, up_to_offset=Offset(7))
    before = found.read()

    plan = log.plan_cleaning(NOW_MS)
    assert plan is not None
    assert log.install(clean(disk, plan))

    assert found.read() == before
    assert read_offsets(log, 0) == [5], "the latest record of the key below the active segment"


def test_reads_agree_with_a_plain_list_of_batches() -> None:
    random = Random(7)
    disk = SimulatedDisk(random)
    disk.make_directory("/data")
    log = open_log(disk, LogConfig(segment_bytes=20_000, index_interval_bytes=400))
    batches: list[tuple[int, int, int, int]] = []  # Base offset, last offset, size, segment.
    for _ in range(900):  # More than are remembered in memory.
        count = random.randint(1, 3)
        info = append(log, batch_of(*[random.randbytes(random.randint(0, 60))] * count))
        size_bytes = log.read(info.base_offset, max_bytes=1, up_to_offset=log.log_end_offset, minimum_one_batch=True)
        batches.append((info.base_offset, info.last_offset, size_bytes.length, size_bytes.segment_base_offset))

    for _ in range(500):
        offset = random.randint(0, log.log_end_offset)
        up_to = random.choice([log.log_end_offset, random.randint(offset, log.log_end_offset)])
        max_bytes = random.choice([1, 200, 1000, 1 << 20])
        at_least_one = random.random() < 0.5

        expected = _expected(batches, offset, up_to, max_bytes, at_least_one)
        assert read_offsets(log, offset, max_bytes=max_bytes, up_to=up_to, at_least_one=at_least_one) == expected


def _expected(
    batches: list[tuple[int, int, int, int]], offset: int, up_to: int, max_bytes: int, at_least_one: bool
) -> list[int]:
    from_offset = [batch for batch in batches if batch[1] >= offset]
    found: list[int] = []
    left = max_bytes
    for base, last, size_bytes, segment in from_offset:
        is_first = not found and at_least_one
        if last >= up_to or segment != from_offset[0][3] or (size_bytes > left and not is_first):
            break
        found.append(base)
        left -= size_bytes
    return found


def test_a_reader_of_many_segments_keeps_few_files_open(tmp_path: Path) -> None:
    log = PartitionLog.open(OsDisk(), f"{tmp_path}/topic-0", LogConfig(segment_bytes=2 * SIZE_BYTES))
    append_values(log, *[b"x"] * 60)
    log.sync()
    open_before = len(os.listdir("/proc/self/fd"))

    for offset in range(60):
        assert read_offsets(log, offset)[0] == offset

    assert len(os.listdir("/proc/self/fd")) - open_before <= 2 * 8
