"""Batches walked over, cut to a range and checked."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.client.fetch.batches import FetchedBatch, check_batches, cut_to_range, slice_data, walk_batches
from quorate.kernel.ids import Offset
from quorate.records.errors import CorruptBatch
from tests.unit.client.batches import batch, log
from tests.unit.records.golden.files import BATCH_FILES, MESSAGE_SET_FILES

SPANS = [(0, 4), (5, 5), (9, 12), (13, 20)]


def walked(data: bytes) -> list[FetchedBatch]:
    return walk_batches(memoryview(data))


def offsets(batches: list[FetchedBatch]) -> list[tuple[int, int]]:
    return [(one.base_offset, one.last_offset) for one in batches]


def test_every_batch_is_found_not_only_the_first() -> None:
    assert offsets(walked(log(*SPANS))) == SPANS


@given(st.integers(0, 400))
def test_a_partial_batch_at_the_end_is_dropped(cut: int) -> None:
    data = log(*SPANS)
    whole = walked(data)
    kept = [one for one in whole if one.position + one.size_bytes <= len(data) - cut]
    assert walked(data[: len(data) - cut]) == kept


def test_nothing_is_nothing() -> None:
    assert walked(b"") == []


def test_a_batch_that_cannot_be_one_is_corrupt() -> None:
    data = bytearray(log((0, 4)))
    data[16] = 9
    with pytest.raises(CorruptBatch, match="magic 9"):
        walked(bytes(data))


@pytest.mark.parametrize(
    ("start", "end", "across", "expected"),
    [
        (0, 21, False, SPANS),
        (5, 13, False, [(5, 5), (9, 12)]),
        (6, 13, False, [(9, 12)]),
        (2, 21, False, SPANS),
        (0, 11, False, [(0, 4), (5, 5)]),
        (11, 21, False, [(9, 12), (13, 20)]),
        (0, 11, True, [(0, 4), (5, 5), (9, 12)]),
        (6, 9, False, []),
        (6, 9, True, []),
        (30, 40, False, []),
    ],
)
def test_a_batch_belongs_to_the_range_of_its_last_offset(
    start: int, end: int, across: bool, expected: list[tuple[int, int]]
) -> None:
    inside = cut_to_range(walked(log(*SPANS)), Offset(start), Offset(end), include_batch_across_end=across)
    assert offsets(inside) == expected


@given(st.lists(st.integers(1, 20), max_size=4))
def test_touching_ranges_give_every_batch_once(inner: list[int]) -> None:
    borders = [0, *sorted(set(inner)), 21]
    batches = walked(log(*SPANS))
    found = [
        span
        for start, end in pairwise(borders)
        for span in offsets(cut_to_range(batches, Offset(start), Offset(end), include_batch_across_end=False))
    ]
    assert found == SPANS


def test_a_slice_holds_its_batches_at_their_new_positions() -> None:
    data = memoryview(log(*SPANS))
    sliced, batches = slice_data(data, walk_batches(data)[1:3])
    assert offsets(walk_batches(sliced)) == SPANS[1:3]
    assert walk_batches(sliced) == batches


def test_every_checksum_is_checked() -> None:
    data = bytearray(log(*SPANS))
    batches = walked(bytes(data))
    check_batches(memoryview(data), batches)
    for one in batches:
        damaged = bytearray(data)
        damaged[one.position + one.size_bytes - 1] ^= 1
        with pytest.raises(CorruptBatch):
            check_batches(memoryview(damaged), batches)


@pytest.mark.parametrize("path", [*BATCH_FILES, *MESSAGE_SET_FILES], ids=lambda path: path.name)
def test_what_real_clients_wrote_is_walked_and_checked(path: Path) -> None:
    data = path.read_bytes()
    batches = walked(data)
    assert sum(one.size_bytes for one in batches) == len(data)
    assert all(one.base_offset <= one.last_offset for one in batches)
    assert all((one.header is None) is (path in MESSAGE_SET_FILES) for one in batches)
    check_batches(memoryview(data), batches)
    damaged = bytearray(data)
    damaged[batches[0].size_bytes - 1] ^= 1
    with pytest.raises(CorruptBatch):
        check_batches(memoryview(damaged), batches)


def test_one_batch_of_many_records_has_one_last_offset() -> None:
    (one,) = walked(batch(100, 1000))
    assert (one.base_offset, one.last_offset, one.size_bytes) == (100, 1099, len(batch(100, 1000)))
