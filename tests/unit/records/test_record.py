import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression, TimestampType
from quorate.records.builder import build_batch
from quorate.records.errors import CorruptBatch
from quorate.records.record import (
    VARINT_BITS,
    VARLONG_BITS,
    Record,
    encode_varint,
    iterate_keys,
    iterate_records,
    read_folded,
    unfold,
)
from tests.unit.records.raw_batches import batch_of_payload, raw_record

DAY_MS = 24 * 60 * 60 * 1000


def test_records_of_each_batch_are_read_at_its_position() -> None:
    first = build_batch([Record(Offset(0), 1, b"a", b"1")])
    second = build_batch([Record(Offset(1), 2, b"b", b"2")], base_offset=Offset(1))
    assert list(iterate_records(first + second, len(first))) == [Record(Offset(1), 2, b"b", b"2")]


def test_timestamp_delta_beyond_32_bits_is_read_whole() -> None:
    """A batch that spans more than 24.8 days."""
    records = [Record(Offset(0), 1_700_000_000_000), Record(Offset(1), 1_700_000_000_000 + 25 * DAY_MS)]
    assert list(iterate_records(build_batch(records))) == records


def test_null_and_empty_are_different() -> None:
    records = [
        Record(Offset(0), 0, None, b""),
        Record(Offset(1), 0, b"", None),
        Record(Offset(2), 0, None, None, (("h", None), ("h", b""), ("", b"x"))),
    ]
    assert list(iterate_records(build_batch(records))) == records
    assert list(iterate_keys(build_batch(records))) == [(0, None, True), (1, b"", False), (2, None, False)]


def test_header_key_that_is_not_utf8_keeps_its_bytes() -> None:
    headers = encode_varint(1) + encode_varint(2) + b"\xff\xfe" + encode_varint(-1)
    batch = batch_of_payload(raw_record(headers=headers), 1)
    (record,) = iterate_records(batch)
    assert record.headers[0][0].encode("utf-8", "surrogateescape") == b"\xff\xfe"
    assert build_batch([record])[61:] == batch[61:]


def test_log_append_time_replaces_the_time_of_every_record() -> None:
    batch = build_batch(
        [Record(Offset(0), 5), Record(Offset(1), 6)],
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        max_timestamp=1000,
    )
    assert [record.timestamp for record in iterate_records(batch)] == [1000, 1000]


def test_sparse_offsets_are_kept() -> None:
    records = [Record(Offset(12), 1, b"k"), Record(Offset(500_000), 1, b"k")]
    batch = build_batch(records, base_offset=Offset(10), last_offset_delta=1_000_000)
    assert list(iterate_records(batch)) == records
    assert [offset for offset, _, _ in iterate_keys(batch)] == [12, 500_000]


MALFORMED_RECORDS = {
    "negative size": encode_varint(-7) + bytes(6),
    "size beyond the batch": encode_varint(1000) + bytes(6),
    "size of more than 32 bits": b"\xff\xff\xff\xff\x7f" + bytes(6),
    "timestamp delta of more than 64 bits": raw_record(timestamp_delta=b"\xff" * 9 + b"\x02"),
    "timestamp beyond 64 bits": raw_record(timestamp_delta=encode_varint(2**63 - 1)),
    "negative offset delta": raw_record(offset_delta=encode_varint(-1)),
    "offset delta above the last": raw_record(offset_delta=encode_varint(1)),
    "negative key length": raw_record(key=encode_varint(-2)),
    "key beyond the record": raw_record(key=encode_varint(100) + b"k"),
    "value beyond the record": raw_record(value=encode_varint(100) + b"v"),
    "negative value length": raw_record(value=encode_varint(-2)),
    "negative header count": raw_record(headers=encode_varint(-1)),
    "two billion headers": raw_record(headers=encode_varint(2**31 - 1)),
    "fewer headers than told": raw_record(headers=encode_varint(2) + encode_varint(0) + encode_varint(-1)),
    "header without a key": raw_record(headers=encode_varint(1) + encode_varint(-1) + encode_varint(-1)),
    "header value beyond the batch": raw_record(
        headers=encode_varint(1) + encode_varint(0) + encode_varint(5), missing_bytes=5
    ),
    "bytes behind the headers": raw_record(headers=encode_varint(0) + b"more"),
    "bytes behind the record": raw_record() + b"\x00",
    "no bytes at all": b"",
}


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
@pytest.mark.parametrize("payload", MALFORMED_RECORDS.values(), ids=MALFORMED_RECORDS.keys())
def test_nonsense_inside_a_record_is_corrupt(payload: bytes, codec: Compression) -> None:
    batch = batch_of_payload(payload, 1, compression=codec, base_timestamp=2**62)
    with pytest.raises(CorruptBatch) as caught:
        list(iterate_records(batch))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("fault", ["header value beyond the batch", "value beyond the record", "key beyond the record"])
def test_damaged_record_is_not_given_out_before_the_damage_is_found(fault: str) -> None:
    with pytest.raises(CorruptBatch):
        next(iterate_records(batch_of_payload(MALFORMED_RECORDS[fault], 1)))


def test_damaged_key_is_not_given_out_before_the_damage_is_found() -> None:
    long_key = raw_record(key=encode_varint(20) + b"k") + bytes(30)
    with pytest.raises(CorruptBatch):
        next(iterate_keys(batch_of_payload(long_key, 1)))


@pytest.mark.parametrize(
    "fault",
    [
        "negative size",
        "size beyond the batch",
        "negative offset delta",
        "key beyond the record",
        "bytes behind the record",
    ],
)
def test_nonsense_is_corrupt_for_a_reader_of_keys_too(fault: str) -> None:
    with pytest.raises(CorruptBatch):
        list(iterate_keys(batch_of_payload(MALFORMED_RECORDS[fault], 1)))


@pytest.mark.parametrize("record_count", [-1, 0, 2, 3, 2**31 - 1])
def test_record_count_that_differs_from_the_records_is_corrupt(record_count: int) -> None:
    batch = batch_of_payload(raw_record(), record_count, last_offset_delta=2**31 - 1)
    with pytest.raises(CorruptBatch):
        list(iterate_records(batch))
    with pytest.raises(CorruptBatch):
        list(iterate_keys(batch))


def test_negative_record_count_of_no_bytes_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        iterate_records(batch_of_payload(b"", -1))


def test_offset_that_repeats_is_corrupt() -> None:
    batch = batch_of_payload(raw_record() + raw_record(), 2, last_offset_delta=1)
    with pytest.raises(CorruptBatch):
        list(iterate_records(batch))
    with pytest.raises(CorruptBatch):
        list(iterate_keys(batch))


def test_batch_that_is_not_all_there_is_corrupt() -> None:
    batch = build_batch([Record(Offset(0), 1, b"k", b"v")])
    with pytest.raises(CorruptBatch):
        iterate_records(batch[:-1])


def test_batch_without_records_has_none() -> None:
    batch = build_batch([], last_offset_delta=4)
    assert list(iterate_records(batch)) == []
    assert list(iterate_keys(batch)) == []


def test_records_beyond_the_decompression_limit_are_refused() -> None:
    batch = build_batch([Record(Offset(0), 1, None, bytes(100_000))], compression=Compression.GZIP)
    with pytest.raises(CorruptBatch):
        iterate_records(batch, limit_bytes=50_000)
    assert len(list(iterate_records(batch, limit_bytes=200_000))) == 1


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
    ],
)
def test_numbers_are_encoded_as_in_kafka(value: int, encoded: str) -> None:
    assert encode_varint(value).hex() == encoded
    folded, end = read_folded(bytes.fromhex(encoded), 0, VARLONG_BITS)
    assert (unfold(folded), end) == (value, len(encoded) // 2)


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3), st.binary(max_size=3))
def test_varint_is_read_back_from_the_middle_of_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    folded, end = read_folded(before + encoded + after, len(before), VARINT_BITS)
    assert (unfold(folded), end) == (value, len(before) + len(encoded))


@given(st.integers(-(2**63), 2**63 - 1))
def test_varlong_is_read_back(value: int) -> None:
    encoded = encode_varint(value)
    folded, end = read_folded(encoded, 0, VARLONG_BITS)
    assert (unfold(folded), end) == (value, len(encoded))


@pytest.mark.parametrize(
    ("encoded", "bits"),
    [
        ("ffffffff10", VARINT_BITS),  # A 33rd bit in the fifth byte.
        ("808080808000", VARINT_BITS),
        ("ffffffffffffffffff02", VARLONG_BITS),
        ("ff" * 20, VARLONG_BITS),
    ],
)
def test_number_of_too_many_bits_is_corrupt(encoded: str, bits: int) -> None:
    with pytest.raises(CorruptBatch):
        read_folded(bytes.fromhex(encoded), 0, bits)
