"""What a restore makes of stored batches: which keep their bytes, which are encoded again, how they are cut."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.restore.batches import (
    as_produced,
    header_of,
    murmur2,
    partition_of,
    restored_batches,
    without_first,
)
from quorate.backup.segments.reader import StoredBatch
from quorate.kernel.ids import Offset
from quorate.records.batch import HEADER_SIZE_BYTES, Compression, TimestampType, read_header
from quorate.records.record import Record, iterate_records
from tests.unit.backup.batches import summary_of
from tests.unit.backup.restored_logs import StoredPartition, data_batch, marker, record, rules, values, written
from tests.unit.records.test_legacy import message, wrapper


def stored(data: bytes) -> StoredBatch:
    return StoredBatch(summary_of(data), memoryview(data))


def restore(data: bytes, from_offset: int = 0, **settings: int | None) -> list[bytes]:
    batch = stored(data)
    found = restored_batches(batch, header_of(batch), rules(**settings), Offset(from_offset))
    return [b"".join(as_produced(each)) for each in found]


def test_dense_batch_keeps_the_bytes_of_its_records() -> None:
    data = data_batch([record(7), record(8)], compression=Compression.ZSTD)

    (produced,) = restore(data)

    assert produced[HEADER_SIZE_BYTES:] == data[HEADER_SIZE_BYTES:]
    assert read_header(produced).base_offset == 0


def test_restored_batch_of_a_transaction_is_plain_data() -> None:
    (produced,) = restore(data_batch([record(0)], producer_id=5, is_transactional=True))

    assert not read_header(produced).is_transactional


def test_batch_whose_record_count_is_not_its_offset_span_is_encoded_again() -> None:
    (produced,) = restore(data_batch([record(3), record(9)], last_offset=20))

    header = read_header(produced)
    assert (header.record_count, header.last_offset_delta) == (2, 1)
    assert values(list(iterate_records(produced))) == [b"value-3", b"value-9"]


def test_log_append_time_batch_keeps_the_times_that_readers_saw() -> None:
    data = data_batch([record(0, 50), record(1, 70)], timestamp_type=TimestampType.LOG_APPEND_TIME)

    (produced,) = restore(data)

    assert read_header(produced).timestamp_type is TimestampType.CREATE_TIME
    assert [each.timestamp for each in iterate_records(produced)] == [70, 70]


def test_old_formats_become_batches_of_the_current_one() -> None:
    (produced,) = restore(wrapper(6, message(0, b"e") + message(1, b"f"), Compression.GZIP))

    assert read_header(produced).compression is Compression.GZIP
    assert values(list(iterate_records(produced))) == [b"e", b"f"]


def test_records_below_the_log_start_are_not_restored() -> None:
    (produced,) = restore(data_batch([record(4), record(5), record(6)]), from_offset=6)

    assert values(list(iterate_records(produced))) == [b"value-6"]


def test_batches_are_cut_by_bytes_within_the_limit_of_the_target() -> None:
    data = data_batch([record(index, value=b"x" * 1000) for index in range(9)])

    cut = restore(data, max_batch_bytes=2500)

    assert all(len(each) <= 2500 for each in cut)
    assert sum(read_header(each).record_count for each in cut) == 9


def test_record_that_is_too_large_alone_comes_out_for_the_survey_to_refuse() -> None:
    data = data_batch([record(0), record(1, value=b"x" * 5000)])
    survey = StoredPartition([data]).survey(rules(max_batch_bytes=1000))

    assert survey.largest_batch_bytes > 5000


def test_rest_of_a_batch_has_the_records_that_the_target_does_not_have() -> None:
    batch = stored(data_batch([record(3), record(5), record(6)]))
    (whole,) = restored_batches(batch, header_of(batch), rules(), Offset(0))

    (rest,) = without_first(whole, 1, rules())

    assert values(list(iterate_records(rest.data))) == [b"value-5", b"value-6"]
    assert [tuple(span) for span in rest.spans] == [(5, 2)]


# As the Java client computes them.
@pytest.mark.parametrize(
    ("key", "digest"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536), (b"", 275646681)],
)
def test_key_hash_is_that_of_kafkas_default_partitioner(key: bytes, digest: int) -> None:
    assert murmur2(key) == digest % 2**32


def test_records_without_a_key_of_one_partition_stay_together() -> None:
    assert {partition_of(None, 7, 5) for _ in range(3)} == {2}


MOVES = st.sampled_from(["plain", "begin 1", "begin 2", "commit 1", "commit 2", "abort 1", "abort 2", "skip", "roll"])


class _Log:
    """A log written move by move, and beside it what a restore must make of it."""

    def __init__(self, start_ms: int | None, end_ms: int | None) -> None:
        self.segments: list[list[bytes]] = [[]]
        self.offset = 0
        self._window = (start_ms, end_ms)
        self._open: dict[int, list[Record]] = {}
        self._ended: list[Record] = []

    def move(self, move: str, times: list[int]) -> None:
        kind, _, number = move.partition(" ")
        producer = int(number or 0)
        if kind == "skip":
            self.offset += 3
        elif kind == "roll" and self.segments[-1]:
            self.segments.append([])
        elif kind in ("plain", "begin"):
            self._data(producer, times)
        elif kind in ("commit", "abort"):
            self.segments[-1].append(marker(self.offset, producer, is_commit=kind == "commit"))
            self.offset += 1
            records = self._open.pop(producer, [])
            if kind == "commit" and all(self._inside(each) for each in records):
                self._ended += records

    def expected(self) -> list[bytes | None]:
        return values(sorted(self._ended, key=lambda each: each.offset))

    def _data(self, producer: int, times: list[int]) -> None:
        records = [record(self.offset + index * (1 + (producer == 0)), time) for index, time in enumerate(times)]
        self.offset = records[-1].offset + 1
        self.segments[-1].append(data_batch(records, producer_id=producer or -1, is_transactional=producer > 0))
        if producer:
            self._open.setdefault(producer, []).extend(records)
        else:
            self._ended += [each for each in records if self._inside(each)]

    def _inside(self, each: Record) -> bool:
        start_ms, end_ms = self._window
        return (start_ms is None or each.timestamp >= start_ms) and (end_ms is None or each.timestamp <= end_ms)


@settings(max_examples=150, deadline=None)
@given(
    moves=st.lists(st.tuples(MOVES, st.lists(st.integers(0, 100), min_size=1, max_size=4)), min_size=1, max_size=15),
    start_ms=st.none() | st.integers(0, 60),
    end_ms=st.none() | st.integers(40, 100),
    position=st.integers(0, 20),
)
def test_restore_has_the_committed_records_of_the_window_in_order_from_any_position(
    moves: list[tuple[str, list[int]]], start_ms: int | None, end_ms: int | None, position: int
) -> None:
    log = _Log(start_ms, end_ms)
    for move, times in moves:
        log.move(move, times)
    partition = StoredPartition(*[segment for segment in log.segments if segment])
    wanted = rules(start_ms=start_ms, end_ms=end_ms)

    assert partition.survey(wanted).record_count == len(log.expected())
    assert values(partition.restored(wanted, position)) == log.expected()[position:]


def test_transaction_whose_end_may_be_missing_is_left_out() -> None:
    """The marker behind the missing offsets is another one's, or it may be."""
    first, second = ([data_batch([record(offset)], producer_id=5, is_transactional=True)] for offset in (0, 8))
    partition = StoredPartition([*first, *second, marker(9, 5, is_commit=True)])

    assert partition.survey(rules()).record_count == 2
    survey = partition.survey(rules(), losses=[Offset(3)])

    assert (survey.record_count, survey.unfinished_transactions) == (1, 1)
    assert [(each.first_offset, each.last_offset) for each in survey.excluded] == [(0, 0)]


def test_transaction_ends_where_its_producer_goes_on_with_another_epoch() -> None:
    batches = [data_batch([record(offset)], producer_id=5, epoch=offset, is_transactional=True) for offset in (0, 1)]
    partition = StoredPartition([*batches, marker(2, 5, is_commit=True)])

    survey = partition.survey(rules())

    assert (survey.record_count, survey.unfinished_transactions) == (1, 1)


def test_segment_whose_last_record_is_old_is_not_passed_over_by_a_point_in_time() -> None:
    partition = StoredPartition([data_batch([record(0, 90)]), data_batch([record(1, 10)])])

    assert values(partition.restored(rules(end_ms=50))) == [b"value-1"]


def test_every_key_keeps_its_order_in_another_number_of_partitions() -> None:
    keys = [b"key-%d" % (index % 7) for index in range(60)]
    batches = [
        data_batch([record(first + index, key=keys[first + index]) for index in range(10)])
        for first in range(0, 60, 10)
    ]
    partition = StoredPartition(batches[:3], batches[3:])
    wanted = rules(partition_count=5)

    found = [partition.restored(wanted, target=share.target) for share in partition.survey(wanted).shares]

    assert sum(len(records) for records in found) == 60
    for key in set(keys):
        (holding,) = [records for records in found if any(each.key == key for each in records)]
        order = [each.value for each in holding if each.key == key]
        assert order == [b"value-%d" % offset for offset in range(60) if keys[offset] == key]


@pytest.mark.parametrize("position", range(13))
def test_target_partition_has_one_source_after_the_other_from_any_position(position: int) -> None:
    first = StoredPartition([data_batch([record(0), record(1), record(2)])], [data_batch([record(3), record(4)])])
    second = StoredPartition([data_batch([record(offset) for offset in range(100, 107)])], storage=first.storage)
    sources = [first.source(rules()), second.source(rules())]

    found = written(first.storage, sources, position)

    assert values(found) == [b"value-%d" % offset for offset in [*range(5), *range(100, 107)]][position:]
