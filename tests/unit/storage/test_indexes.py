from bisect import bisect_right
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.ids import Offset
from quorate.storage.indexes import OffsetIndex, TimeIndex
from tests.simulation.disk import SimulatedDisk

BASE = Offset(1000)


@pytest.fixture
def offset_index(disk: SimulatedDisk) -> OffsetIndex:
    return OffsetIndex(disk, "/data/1000.index", BASE, is_new=True)


@pytest.fixture
def time_index(disk: SimulatedDisk) -> TimeIndex:
    return TimeIndex(disk, "/data/1000.timeindex", BASE, is_new=True)


@pytest.mark.parametrize("stored", [0, 2, 4])
def test_an_offset_leads_to_the_last_entry_that_is_not_above_it(offset_index: OffsetIndex, stored: int) -> None:
    for count, (offset, position) in enumerate([(1009, 100), (1019, 250), (1020, 300), (1099, 900)]):
        offset_index.add(Offset(offset), position)
        if count + 1 == stored:
            offset_index.store()

    found = {offset: offset_index.position_for(Offset(offset)) for offset in (1000, 1009, 1018, 1019, 1050, 5000)}

    assert found == {1000: 0, 1009: 100, 1018: 100, 1019: 250, 1050: 300, 5000: 900}
    assert offset_index.position_at_or_before(299) == 250
    assert offset_index.position_at_or_before(300) == 300
    assert offset_index.position_at_or_before(99) == 0


def test_entries_are_stored_in_the_format_of_kafka(disk: SimulatedDisk) -> None:
    offset_index = OffsetIndex(disk, "/data/index", BASE, is_new=True)
    time_index = TimeIndex(disk, "/data/timeindex", BASE, is_new=True)
    offset_index.add(Offset(1009), 4321)
    time_index.add(1_700_000_000_000, Offset(1009))

    offset_index.store()
    time_index.store()

    assert disk.open("/data/index").read(0, 100) == (9).to_bytes(4) + (4321).to_bytes(4)
    assert disk.open("/data/timeindex").read(0, 100) == (1_700_000_000_000).to_bytes(8) + (9).to_bytes(4)


def test_a_stored_index_is_read_back(disk: SimulatedDisk, offset_index: OffsetIndex) -> None:
    offset_index.add(Offset(1009), 100)
    offset_index.add(Offset(1019), 200)
    offset_index.store()

    again = OffsetIndex(disk, "/data/1000.index", BASE, is_new=False)

    assert len(again) == 2
    assert again.position_for(Offset(1019)) == 200


@pytest.mark.parametrize("stored", [False, True])
def test_truncation_drops_the_entries_of_batches_that_hold_the_offset(offset_index: OffsetIndex, stored: bool) -> None:
    for offset in (1009, 1019, 1029):
        offset_index.add(Offset(offset), offset)
    if stored:
        offset_index.store()
        offset_index.add(Offset(1039), 1039)

    offset_index.truncate_to(Offset(1019))
    offset_index.add(Offset(1025), 1025)

    assert [offset_index[index][1] for index in range(len(offset_index))] == [1009, 1025]


def test_an_index_that_cannot_be_stored_stays_whole_in_memory(disk: SimulatedDisk, offset_index: OffsetIndex) -> None:
    for offset in range(1000, 1000 + 5000):  # Enough to be stored on the way.
        disk.free_bytes = 20 if offset > 1100 else 1 << 40
        offset_index.add(Offset(offset), offset)

    with pytest.raises(OSError, match="No space left"):
        offset_index.store()
    disk.free_bytes = 1 << 40
    offset_index.store()

    assert disk.open("/data/1000.index").size() == 5000 * 8
    assert [offset_index[index][1] for index in (0, 2500, 4999)] == [1000, 3500, 5999]


def test_the_time_index_takes_only_entries_that_rise(time_index: TimeIndex) -> None:
    for timestamp_ms, offset in [(50, 1001), (50, 1002), (40, 1003), (-1, 1004), (60, 1005)]:
        time_index.add(timestamp_ms, Offset(offset))

    assert [time_index[index] for index in range(len(time_index))] == [(50, 1), (60, 5)]
    assert time_index.last() == (60, 1005)


@given(
    offsets=st.lists(st.integers(1000, 100_000), unique=True, max_size=50).map(sorted),
    wanted=st.integers(900, 101_000),
    stored=st.integers(0, 50),
)
def test_lookups_agree_with_a_plain_list(offsets: list[int], wanted: int, stored: int) -> None:
    disk = SimulatedDisk(Random(1))
    disk.make_directory("/data")
    index = OffsetIndex(disk, "/data/i", BASE, is_new=True)
    for count, offset in enumerate(offsets):
        index.add(Offset(offset), offset * 2)
        if count == stored:
            index.store()

    before = bisect_right(offsets, wanted)
    assert index.position_for(Offset(wanted)) == (offsets[before - 1] * 2 if before else 0)
