"""Offsets of groups translated: nothing is skipped, wherever a group stood."""

from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.restore_batches import Span
from quorate.backup.restore_offset_map import first_unread
from quorate.backup.restore_plan import MapSource
from quorate.kernel.ids import Offset, PartitionIndex

P0, P1 = PartitionIndex(0), PartitionIndex(1)


def spans(*pairs: tuple[int, int]) -> list[Span]:
    return [Span(Offset(first), length) for first, length in pairs]


def test_group_that_stood_inside_a_compaction_gap_goes_on_at_the_next_record() -> None:
    sources = [MapSource(P0, spans((0, 3), (10, 5)))]

    assert first_unread(sources, {P0: Offset(7)}) == 3


def test_group_inside_a_span_goes_on_at_its_own_record() -> None:
    assert first_unread([MapSource(P0, spans((0, 3), (10, 5)))], {P0: Offset(12)}) == 5


def test_group_before_the_start_and_behind_the_end() -> None:
    sources = [MapSource(P0, spans((10, 5)))]

    assert first_unread(sources, {P0: Offset(2)}) == 0
    assert first_unread(sources, {P0: Offset(15)}) == 5
    assert first_unread([], {P0: Offset(15)}) == 0


def test_source_partition_that_was_not_read_counts_from_its_first_record() -> None:
    sources = [MapSource(P0, spans((0, 4))), MapSource(P1, spans((0, 4)))]

    assert first_unread(sources, {P0: Offset(4)}) == 4


OFFSETS = st.sets(st.integers(0, 30), max_size=15)


@given(first=OFFSETS, second=OFFSETS, committed=st.tuples(st.integers(0, 35), st.integers(0, 35)))
def test_no_unread_record_is_skipped_and_the_first_one_is_next(
    first: set[int], second: set[int], committed: tuple[int, int]
) -> None:
    sources = [
        MapSource(PartitionIndex(index), spans(*[(offset, 1) for offset in sorted(offsets)]))
        for index, offsets in enumerate((first, second))
    ]
    records = [(index, offset) for index, offsets in enumerate((first, second)) for offset in sorted(offsets)]
    unread = [place for place, (index, offset) in enumerate(records) if offset >= committed[index]]

    found = first_unread(sources, {PartitionIndex(index): Offset(committed[index]) for index in range(2)})

    assert found == (unread[0] if unread else len(records))
