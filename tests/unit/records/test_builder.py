import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression, TimestampType, check_crc, read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record, iterate_keys, iterate_records
from tests.unit.records.strategies import sparse_records, timestamps

ONE = [Record(Offset(0), 1000, b"k", b"v")]


@given(sparse_records(), st.sampled_from(Compression), st.integers(0, 5), st.integers(0, 5))
def test_built_batch_is_read_back(records: list[Record], codec: Compression, before: int, after: int) -> None:
    base_offset = Offset(max(0, records[0].offset - before))
    last_offset_delta = records[-1].offset - base_offset + after

    batch = build_batch(records, base_offset=base_offset, last_offset_delta=last_offset_delta, compression=codec)

    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset_delta) == (base_offset, last_offset_delta)
    assert header.record_count == len(records)
    assert header.compression is codec
    assert header.base_timestamp == records[0].timestamp
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert list(iterate_records(batch)) == records
    assert list(iterate_keys(batch)) == [(record.offset, record.key, record.value is not None) for record in records]


@given(sparse_records(), timestamps)
def test_delete_horizon_is_the_base_timestamp_and_changes_no_record(records: list[Record], horizon: int) -> None:
    batch = build_batch(records, base_offset=records[0].offset, delete_horizon_ms=horizon)
    header = read_header(batch)
    assert header.has_delete_horizon
    assert header.base_timestamp == horizon
    assert list(iterate_records(batch)) == records


def test_every_field_of_the_header_can_be_told() -> None:
    header = read_header(
        build_batch(
            [Record(Offset(100), 1000, b"k", b"v"), Record(Offset(103), 900)],
            base_offset=Offset(98),
            last_offset_delta=9,
            leader_epoch=LeaderEpoch(4),
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            max_timestamp=5000,
            producer_id=ProducerId(77),
            producer_epoch=ProducerEpoch(6),
            base_sequence=12,
            is_transactional=True,
        )
    )
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (98, 107, 4)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, 5000)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (77, 6, 12)
    assert (header.is_transactional, header.is_control, header.has_delete_horizon) == (True, False, False)
    assert header.record_count == 2


def test_batch_without_records_keeps_its_offsets_and_its_sequence() -> None:
    """Compaction leaves such a header, so that a producer's last sequence is not forgotten."""
    batch = build_batch(
        [],
        base_offset=Offset(10),
        last_offset_delta=4,
        compression=Compression.LZ4,
        max_timestamp=1234,
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        base_sequence=20,
    )
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (len(batch), header.record_count, header.last_offset, header.last_sequence) == (61, 0, 14, 24)
    assert (header.max_timestamp, header.compression) == (1234, Compression.NONE)


@pytest.mark.parametrize(
    ("records", "arguments"),
    [
        ([], {}),
        (ONE, {"base_offset": 1}),
        ([*ONE, *ONE], {}),
        ([Record(Offset(1), 0), Record(Offset(0), 0)], {"last_offset_delta": 5}),
        (ONE, {"last_offset_delta": -1}),
        ([Record(Offset(2**31), 0)], {}),
        ([Record(Offset(5), 0)], {"last_offset_delta": 4}),
    ],
    ids=["empty", "before base", "same offset", "descending", "negative span", "span too long", "after last"],
)
def test_offsets_that_no_batch_can_hold_are_refused(records: list[Record], arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"batch"):
        build_batch(records, **arguments)  # type: ignore[arg-type]
