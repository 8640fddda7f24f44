"""Restored batches at the offsets of their source: nothing moves, and no offset lies between two batches."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.restore.outgoing import MAX_SPAN
from quorate.records.batch import BatchHeader, Compression, TimestampType, read_header
from quorate.records.record import Record, iterate_records
from tests.unit.backup.restored_logs import StoredPartition, data_batch, kept, marker, record, rules


def headers_of(batches: Sequence[bytes]) -> list[BatchHeader]:
    return [read_header(batch) for batch in batches]


def records_of(batches: Sequence[bytes]) -> list[Record]:
    return [each for batch in batches for each in iterate_records(batch)]


def assert_without_gap(batches: Sequence[bytes], start: int, end: int) -> None:
    position = start
    for header in headers_of(batches):
        assert header.base_offset == position
        assert header.last_offset_delta < MAX_SPAN
        position = header.next_offset
    assert position == end


WANTED = rules(keep_offsets=True)


def test_batch_ends_where_the_next_one_begins_and_the_log_where_it_did_at_the_source() -> None:
    stored = StoredPartition([data_batch([record(5), record(6)]), marker(7, 1, is_commit=True)], start_offset=3)

    batches = kept(stored, WANTED, end_offset=12)

    assert [(each.base_offset, each.next_offset, each.record_count) for each in headers_of(batches)] == [
        (0, 5, 0),
        (5, 12, 2),
    ]
    assert records_of(batches) == [record(5), record(6)]


def test_compacted_batch_keeps_its_bytes() -> None:
    data = data_batch([record(2), record(7)], compression=Compression.ZSTD, last_offset=9)
    stored = StoredPartition([data])

    (_, batch) = kept(stored, WANTED, end_offset=10)

    assert bytes(batch[61:]) == data[61:]
    assert stored.survey(WANTED).shares[0].spans == [(2, 1), (7, 1)]


def test_aborted_transactions_and_emptied_batches_are_holes() -> None:
    stored = StoredPartition(
        [
            data_batch([record(0)], producer_id=1, is_transactional=True),
            data_batch([record(1)], producer_id=2, is_transactional=True),
            marker(2, 2, is_commit=False),
            marker(3, 1, is_commit=True),
        ],
        [data_batch([record(9)])],
    )

    batches = kept(stored, WANTED, end_offset=10)

    assert_without_gap(batches, 0, 10)
    assert [each.offset for each in records_of(batches)] == [0, 9]
    assert not any(each.is_transactional for each in headers_of(batches))


def test_log_append_times_are_kept_with_the_offsets() -> None:
    data = data_batch([record(4, 100), record(8, 300)], timestamp_type=TimestampType.LOG_APPEND_TIME)

    batches = kept(StoredPartition([data]), WANTED, end_offset=9)

    assert [(each.offset, each.timestamp) for each in records_of(batches)] == [(4, 300), (8, 300)]


def test_batch_that_is_too_large_is_cut_between_its_records() -> None:
    data = data_batch([record(3 * number, value=b"x" * 300) for number in range(10)])

    batches = kept(StoredPartition([data]), rules(keep_offsets=True, max_batch_bytes=1000), end_offset=40)

    assert len(batches) > 2
    assert max(len(batch) for batch in batches) <= 1000
    assert_without_gap(batches, 0, 40)
    assert [each.offset for each in records_of(batches)] == [3 * number for number in range(10)]


def test_partition_without_records_is_covered_up_to_its_end() -> None:
    assert_without_gap(kept(StoredPartition(), WANTED, end_offset=500), 0, 500)


@pytest.mark.parametrize("start", [0, 2**28, 2**33 + 17])
def test_holes_longer_than_a_batch_may_be_are_covered_by_several(start: int) -> None:
    stored = StoredPartition([data_batch([record(start)])], start_offset=start)
    end = start + 2**30 + 5

    batches = kept(stored, WANTED, end_offset=end)

    assert_without_gap(batches, 0, end)
    assert [each.offset for each in records_of(batches)] == [start]
    sequences = [each.base_offset % 2**31 for each in headers_of(batches)]
    for place in range(len(sequences)):
        recent = sequences[max(0, place - 5) : place]
        assert sequences[place] not in recent, "a leader would take it for a repetition"


offsets = st.lists(st.integers(0, 200), min_size=1, max_size=40, unique=True).map(sorted)


@given(offsets=offsets, cuts=st.sets(st.integers(1, 40)), tail=st.integers(0, 20), resume_at=st.integers(0, 220))
def test_reading_on_from_any_offset_gives_what_was_to_come(
    offsets: list[int], cuts: set[int], tail: int, resume_at: int
) -> None:
    places = sorted({0, len(offsets), *(cut for cut in cuts if cut < len(offsets))})
    parts = [offsets[first:last] for first, last in itertools.pairwise(places)]
    stored = StoredPartition(*[[data_batch([record(offset) for offset in part])] for part in parts])
    end = offsets[-1] + 1 + tail

    rest = kept(stored, WANTED, end_offset=end, position=min(resume_at, end))

    assert_without_gap(rest, min(resume_at, end), end)
    assert [each.offset for each in records_of(rest)] == [offset for offset in offsets if offset >= resume_at]
    assert all(each == record(each.offset) for each in records_of(rest))
