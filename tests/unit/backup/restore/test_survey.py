"""Which segments a survey need not look into, and that their entries say the same as their batches."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.restore.survey import goes_whole
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression, TimestampType
from quorate.records.builder import build_batch
from tests.unit.backup.restored_logs import StoredPartition, data_batch, marker, record, rules
from tests.unit.records.test_legacy import message

PLAIN = [data_batch([record(0, 50), record(1, 70)]), data_batch([record(2, 20)], producer_id=7)]


def goes(*batches: bytes, start_offset: int = 0, **settings: int | None) -> bool:
    (entry,) = StoredPartition(batches, start_offset=start_offset).entries
    return goes_whole(entry, rules(**settings))


@pytest.mark.parametrize("settings", [{}, {"end_ms": 70}, {"keep_offsets": 1}], ids=str)
def test_segment_of_plain_batches_goes_as_it_is(settings: dict[str, int]) -> None:
    assert goes(*PLAIN, **settings)


@pytest.mark.parametrize(
    "settings", [{"end_ms": 69}, {"start_ms": 1}, {"partition_count": 3}, {"max_batch_bytes": 70}], ids=str
)
def test_segment_of_which_something_else_is_wanted_is_looked_into(settings: dict[str, int]) -> None:
    assert not goes(*PLAIN, **settings)


@pytest.mark.parametrize(
    "make",
    [
        lambda: data_batch([record(3)], timestamp_type=TimestampType.LOG_APPEND_TIME),
        lambda: data_batch([record(3)], producer_id=7, is_transactional=True),
        lambda: data_batch([record(3), record(5)]),
        lambda: data_batch([record(3)], last_offset=4),
        lambda: data_batch([record(4)]),
        lambda: build_batch([], base_offset=Offset(3), last_offset_delta=0),
        lambda: build_batch([record(3)], base_offset=Offset(3), delete_horizon_ms=99),
        lambda: marker(3, 7, is_commit=True),
        lambda: message(3, b"old"),
    ],
    ids=[
        "the broker's times",
        "a transaction",
        "sparse",
        "an offset missing at the end of a batch",
        "an offset missing between batches",
        "empty",
        "a delete horizon",
        "a marker",
        "an old format",
    ],
)
def test_one_batch_that_is_not_plain_has_the_segment_looked_into(make: Callable[[], bytes]) -> None:
    assert not goes(*PLAIN, make())


def test_segment_whose_first_records_were_deleted_is_looked_into() -> None:
    assert not goes(*PLAIN, start_offset=1)


def test_segment_of_which_a_part_was_truncated_is_looked_into() -> None:
    (entry,) = StoredPartition(PLAIN).entries

    assert not goes_whole(msgspec.structs.replace(entry, superseded_from_offset=Offset(2)), rules())


def test_transaction_goes_on_over_a_segment_that_nobody_looked_into() -> None:
    begun = [data_batch([record(0)], producer_id=5, is_transactional=True)]
    partition = StoredPartition(begun, [data_batch([record(1)])], [marker(2, 5, is_commit=True)])

    assert partition.survey(rules()).record_count == 2
    assert partition.survey(rules(), losses=[Offset(1)]).record_count == 1


@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.sampled_from(Compression)), min_size=1, max_size=12),
    gap=st.integers(0, 13),
    end_ms=st.none() | st.integers(990, 1010),
)
def test_entries_say_the_same_as_batches(
    sizes: list[tuple[int, bool, Compression]], gap: int, end_ms: int | None
) -> None:
    """``survey`` compares both ways; here most segments go as they are."""
    segments: list[list[bytes]] = [[]]
    offset = 0
    for index, (count, rolls, codec) in enumerate(sizes):
        offset += index == gap
        records = [record(offset + each, 1_000 + index) for each in range(count)]
        segments[-1].append(data_batch(records, compression=codec))
        offset += count
        if rolls:
            segments.append([])
    partition = StoredPartition(*[segment for segment in segments if segment])

    survey = partition.survey(rules(end_ms=end_ms))

    assert survey.record_count == sum(
        count for index, (count, _, _) in enumerate(sizes) if end_ms is None or 1_000 + index <= end_ms
    )
