"""What stays of a single batch."""

import msgspec
import pytest

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch
from quorate.records.batch import Compression, TimestampType, check_crc, read_header
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, build_end_transaction_marker, marker_of_batch
from quorate.records.record import Record, iterate_records
from quorate.storage.cleaner import CompactionRules, LatestOffsets, compact_batch, compact_marker
from tests.unit.storage.batches import EPOCH, NOW_MS, PRODUCER

RETENTION_MS = 1000


def batch_at(
    base_offset: int,
    *records: tuple[bytes | None, bytes | None],
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    delete_horizon_ms: int | None = None,
) -> bytes:
    return build_batch(
        [
            Record(Offset(base_offset + delta), NOW_MS + delta, key, value, (("h", b"1"), ("h", None)))
            for delta, (key, value) in enumerate(records)
        ],
        base_offset=Offset(base_offset),
        leader_epoch=EPOCH,
        compression=compression,
        timestamp_type=timestamp_type,
        delete_horizon_ms=delete_horizon_ms,
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(2),
        base_sequence=30,
    )


def rules(*later: bytes, kept_last_offsets: frozenset[int] = frozenset(), now_ms: int = NOW_MS) -> CompactionRules:
    """As if the batch, which ends before 100, were followed by records of the ``later`` keys."""
    latest = LatestOffsets(Offset(0))
    if later:
        followers = batch_at(100, *[(key, b"later") for key in later])
        latest.add(memoryview(followers), read_header(followers))
    latest.end = Offset(200)
    return CompactionRules(
        latest=latest,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
        kept_last_offsets=frozenset(map(Offset, kept_last_offsets)),
    )


def compact_done(marker: bytes, rules: CompactionRules) -> bytes:
    kept = bytes(compact_marker(memoryview(marker), read_header(marker), rules))
    if kept:
        check_crc(kept, 0, read_header(kept))
    return kept


def compact(batch: bytes, rules: CompactionRules) -> bytes:
    kept = bytes(compact_batch(memoryview(batch), read_header(batch), rules))
    if kept:
        check_crc(kept, 0, read_header(kept))
    return kept


def test_a_batch_from_which_nothing_goes_is_kept_byte_for_byte() -> None:
    batch = batch_at(10, (b"a", b"1"), (b"b", b"2"), compression=Compression.LZ4)

    assert compact(batch, rules(b"other")) == batch


@pytest.mark.parametrize("compression", list(Compression))
def test_superseded_records_go_and_the_rest_stays_as_it_was(compression: Compression) -> None:
    batch = batch_at(10, (b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression=compression)
    before, header = list(iterate_records(batch)), read_header(batch)

    kept = compact(batch, rules(b"a", b"c"))

    assert list(iterate_records(kept)) == [before[1]]
    after = read_header(kept)
    assert after.compression is compression
    assert (after.base_offset, after.last_offset, after.record_count) == (10, 12, 1)
    assert (after.partition_leader_epoch, after.producer_id, after.producer_epoch) == (EPOCH, PRODUCER, 2)
    assert (after.base_sequence, after.last_sequence) == (header.base_sequence, header.last_sequence)


def test_a_later_record_of_the_same_batch_supersedes_too() -> None:
    batch = batch_at(10, (b"a", b"1"), (b"a", b"2"))
    latest = LatestOffsets(Offset(0))
    latest.add(memoryview(batch), read_header(batch))
    own = CompactionRules(latest=latest, now_ms=NOW_MS, delete_retention_ms=0, kept_last_offsets=())

    assert [record.value for record in iterate_records(compact(batch, own))] == [b"2"]


def test_records_that_the_round_did_not_reach_stay() -> None:
    batch = batch_at(250, (b"a", b"1"), (None, b"2"))

    assert compact(batch, rules(b"a")) == batch


def test_records_without_a_key_go() -> None:
    kept = compact(batch_at(10, (None, b"1"), (b"b", b"2")), rules())

    assert [record.value for record in iterate_records(kept)] == [b"2"]


def test_a_batch_that_loses_everything_is_dropped() -> None:
    assert compact(batch_at(10, (b"a", b"1")), rules(b"a")) == b""


def test_the_last_batch_of_a_producer_stays_as_a_bare_header() -> None:
    batch = batch_at(10, (b"a", b"1"), (b"a", b"2"))

    kept = compact(batch, rules(b"a", kept_last_offsets=frozenset({11})))

    header = read_header(kept)
    assert (header.record_count, list(iterate_records(kept))) == (0, [])
    assert (header.base_offset, header.last_offset, header.last_sequence) == (10, 11, 31)
    assert header.max_timestamp == NOW_MS + 1
    assert compact(kept, rules(kept_last_offsets=frozenset({11}))) == kept, "also in the next round"
    assert compact(kept, rules()) == b"", "until the producer has written something else"


def test_a_tombstone_gets_a_horizon_in_its_first_round_and_goes_after_it() -> None:
    batch = batch_at(10, (b"a", None), (b"b", b"2"))

    first = compact(batch, rules())
    header = read_header(first)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert list(iterate_records(first)) == list(iterate_records(batch))

    assert compact(first, rules(now_ms=NOW_MS + RETENTION_MS - 1)) == first
    last = compact(first, rules(now_ms=NOW_MS + RETENTION_MS))
    assert [record.key for record in iterate_records(last)] == [b"b"]


def test_a_horizon_stays_when_other_records_go() -> None:
    batch = batch_at(10, (b"a", None), (b"b", b"2"), delete_horizon_ms=NOW_MS + 50)

    kept = compact(batch, rules(b"b", now_ms=NOW_MS + 10))

    assert read_header(kept).base_timestamp == NOW_MS + 50
    assert [record.timestamp for record in iterate_records(kept)] == [NOW_MS]


def test_the_append_time_of_a_batch_does_not_change() -> None:
    batch = batch_at(10, (b"a", b"1"), (b"b", b"2"), timestamp_type=TimestampType.LOG_APPEND_TIME)

    kept = compact(batch, rules(b"b"))

    assert read_header(kept).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in iterate_records(kept)] == [NOW_MS + 1]


def marker_at_ten() -> bytes:
    return build_end_transaction_marker(
        EndTransactionMarker(is_commit=True, coordinator_epoch=1),
        producer_id=PRODUCER,
        producer_epoch=ProducerEpoch(2),
        timestamp_ms=NOW_MS,
        base_offset=Offset(10),
        leader_epoch=LeaderEpoch(1),
    )


def test_a_marker_that_has_done_its_work_gets_a_horizon_and_goes_after_it() -> None:
    marker = marker_at_ten()

    first = compact_done(marker, rules())

    assert read_header(first).has_delete_horizon
    assert read_header(first).is_control
    assert marker_of_batch(first) == marker_of_batch(marker)
    assert compact_done(first, rules(now_ms=NOW_MS + RETENTION_MS - 1)) == first
    assert compact_done(first, rules(now_ms=NOW_MS + RETENTION_MS)) == b""


@pytest.mark.parametrize("knows_offset", [True, False])
def test_a_marker_that_tells_the_last_epoch_of_a_producer_stays_as_a_bare_header(knows_offset: bool) -> None:
    later = rules(now_ms=NOW_MS + RETENTION_MS, kept_last_offsets=frozenset({10}) if knows_offset else frozenset())
    if not knows_offset:
        later = msgspec.structs.replace(later, kept_marker_epochs={PRODUCER: ProducerEpoch(2)})

    left = compact_done(compact_done(marker_at_ten(), rules()), later)

    header = read_header(left)
    assert (header.record_count, header.producer_id, header.producer_epoch) == (0, PRODUCER, 2)
    assert header.is_control
    assert compact_done(left, later) == left
    assert compact_done(left, rules()) == b""


def test_long_keys_are_told_apart() -> None:
    batch = batch_at(10, (b"x" * 500 + b"1", b"1"), (b"x" * 500 + b"2", b"2"))

    kept = compact(batch, rules(b"x" * 500 + b"2"))

    assert [record.value for record in iterate_records(kept)] == [b"1"]
