"""A batch belongs to exactly one range, also where a cut falls inside it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.planning.ranges import Placement, place
from quorate.kernel.ids import Offset
from tests.unit.backup.batches import offset_range


@pytest.mark.parametrize(
    ("base", "last", "is_first", "is_last", "expected"),
    [
        (0, 9, True, True, Placement.BEFORE),
        (5, 12, True, True, Placement.INSIDE),
        (5, 12, False, True, Placement.BEFORE),
        (10, 12, False, False, Placement.INSIDE),
        (18, 25, False, False, Placement.INSIDE),
        (18, 25, False, True, Placement.BEYOND),
        (18, 19, False, True, Placement.INSIDE),
        (20, 21, False, False, Placement.BEYOND),
    ],
)
def test_a_batch_belongs_where_its_base_offset_lies_except_at_the_outer_ends(
    base: int, last: int, is_first: bool, is_last: bool, expected: Placement
) -> None:
    each = offset_range(10, 20, is_first=is_first, is_last=is_last)

    assert place(each, Offset(base), Offset(last)) is expected


@given(st.lists(st.integers(1, 12), min_size=1, max_size=20), st.data())
def test_every_batch_of_a_log_is_taken_by_exactly_one_range(sizes: list[int], data: st.DataObject) -> None:
    batches = []
    end = 0
    for size in sizes:
        batches.append((Offset(end), Offset(end + size - 1)))
        end += size
    cuts = sorted({0, end, *data.draw(st.lists(st.integers(0, end), max_size=6))})
    ranges = [offset_range(low, high, is_first=low == 0, is_last=high == end) for low, high in itertools.pairwise(cuts)]

    for base, last in batches:
        assert [place(each, base, last) for each in ranges].count(Placement.INSIDE) == 1
