"""Produced batches are checked as Apache Kafka checks them: headers, and records where a topic asks for it."""

import time
import zlib
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import (
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    check_crc,
    read_header,
)
from quorate.records.builder import build_batch
from quorate.records.compression import decompress
from quorate.records.errors import CorruptBatch, ExpandsTooFar, InvalidRecord
from quorate.records.record import Record, iterate_records, records_in_payload
from quorate.records.validation import OpeningRules, check_records, open_batch, opening_limit_bytes, validate_produced
from tests.unit.records.raw_batches import batch_of_payload, raw_record

LATEST = 13


VALID = build_batch([Record(Offset(0), 1000, b"k", b"v"), Record(Offset(1), 1001, b"k", b"v")])


ONE_RECORD = raw_record()


def flipped(batch: bytes, position: int) -> bytes:
    damaged = bytearray(batch)
    damaged[position] ^= 0x01
    return bytes(damaged)


def with_magic(magic: int) -> bytes:
    return VALID[:16] + bytes([magic]) + VALID[17:]


def test_batch_of_a_producer_is_taken() -> None:
    assert validate_produced(VALID, produce_version=LATEST) == read_header(VALID)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(wrap: type) -> None:
    assert validate_produced(wrap(VALID), produce_version=LATEST) == read_header(VALID)


@pytest.mark.parametrize(
    ("produced", "code"),
    [
        (b"", ErrorCode.INVALID_RECORD),
        (VALID + VALID, ErrorCode.INVALID_RECORD),
        (VALID[:-1], ErrorCode.CORRUPT_MESSAGE),
        (VALID + b"\x00", ErrorCode.CORRUPT_MESSAGE),
        (VALID[:20], ErrorCode.CORRUPT_MESSAGE),
        (flipped(VALID, len(VALID) - 1), ErrorCode.CORRUPT_MESSAGE),
        (flipped(VALID, 17), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(3), ErrorCode.CORRUPT_MESSAGE),
        (with_magic(0), ErrorCode.INVALID_RECORD),
        (with_magic(1), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, attributes=CONTROL_MASK), ErrorCode.INVALID_RECORD),
        (batch_of_payload(b"", 0, last_offset_delta=-1), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, -1, last_offset_delta=-2), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, last_offset_delta=1), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 2, last_offset_delta=0), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, attributes=5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch_of_payload(ONE_RECORD, 1, attributes=7), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (batch_of_payload(ONE_RECORD, 1, producer_id=7, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, producer_id=7, base_sequence=0), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, attributes=TRANSACTIONAL_MASK), ErrorCode.INVALID_RECORD),
        (batch_of_payload(ONE_RECORD, 1, attributes=TIMESTAMP_TYPE_MASK), ErrorCode.INVALID_TIMESTAMP),
    ],
    ids=[
        "no batch",
        "two batches",
        "cut short",
        "bytes behind",
        "cut in the header",
        "damaged record",
        "damaged CRC",
        "unknown magic",
        "message format 0",
        "message format 1",
        "control batch",
        "no records",
        "negative count",
        "fewer records than offsets",
        "more records than offsets",
        "codec 5",
        "codec 7",
        "producer id without a sequence",
        "producer id without an epoch",
        "transaction without a producer id",
        "LogAppendTime",
    ],
)
def test_what_a_producer_may_not_send_is_refused_with_kafkas_code(produced: bytes, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        validate_produced(produced, produce_version=LATEST)
    assert caught.value.code is code


def test_zstd_needs_produce_7() -> None:
    batch = batch_of_payload(ONE_RECORD, 1, compression=Compression.ZSTD)
    assert validate_produced(batch, produce_version=7)
    with pytest.raises(KafkaError) as caught:
        validate_produced(batch, produce_version=6)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_sequence_without_a_producer_id_is_taken() -> None:
    """aiokafka sends base sequence 0 when it is not idempotent."""
    batch = batch_of_payload(ONE_RECORD, 1, producer_id=-1, producer_epoch=-1, base_sequence=0)
    assert validate_produced(batch, produce_version=LATEST)


@pytest.mark.parametrize("attributes", [0, TRANSACTIONAL_MASK])
def test_idempotent_and_transactional_batches_are_taken(attributes: int) -> None:
    batch = batch_of_payload(ONE_RECORD, 1, attributes=attributes, producer_id=7, producer_epoch=0, base_sequence=0)
    assert validate_produced(batch, produce_version=LATEST)


NOW_MS = 1_700_000_000_000


MIB = 1024 * 1024


KEYED = [
    Record(Offset(0), NOW_MS, b"k", b"v" * 300),
    Record(Offset(1), NOW_MS - 7, b"", None, (("h", b"v"), ("h", None))),
    Record(Offset(2), NOW_MS + 9, b"k" * 200, b""),
]


KEYS = OpeningRules(requires_keys=True)


def batch_of(records: list[Record], codec: Compression = Compression.NONE) -> memoryview:
    return memoryview(bytearray(build_batch(records, compression=codec)))


@pytest.mark.parametrize("codec", Compression)
def test_compacted_topic_takes_no_record_without_a_key(codec: Compression) -> None:
    batch = batch_of(KEYED, codec)
    assert open_batch(batch, KEYS) is batch

    with pytest.raises(InvalidRecord):
        open_batch(batch_of([*KEYED, Record(Offset(3), NOW_MS, None, b"v")], codec), KEYS)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("wanted", Compression)
def test_recompressed_batch_has_the_same_records_and_header(codec: Compression, wanted: Compression) -> None:
    batch = memoryview(
        bytearray(
            build_batch(
                KEYED,
                compression=codec,
                producer_id=ProducerId(7),
                producer_epoch=ProducerEpoch(3),
                base_sequence=11,
                is_transactional=True,
            )
        )
    )
    stored = open_batch(batch, OpeningRules(codec=wanted))

    before, after = read_header(batch), read_header(stored)
    check_crc(stored, 0, after)
    assert list(iterate_records(stored)) == KEYED
    assert after.compression is wanted
    assert after.size_bytes == len(stored)
    same = before._replace(batch_length=after.batch_length, attributes=after.attributes, crc=after.crc)
    assert after == same
    assert not stored.readonly


def test_a_batch_that_has_its_codec_is_not_opened_for_it() -> None:
    header = read_header(batch_of(KEYED, Compression.LZ4))

    assert not OpeningRules(codec=Compression.LZ4).apply_to(header)
    assert OpeningRules(codec=Compression.NONE).apply_to(header)
    assert OpeningRules(codec=Compression.LZ4, requires_keys=True).apply_to(header)
    assert OpeningRules(earliest_timestamp=0).apply_to(header)


@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize(
    ("timestamps", "is_taken"),
    [
        ([NOW_MS - 1000], True),
        ([NOW_MS, NOW_MS - 1001, NOW_MS], False),  # The header does not tell.
        ([-1], True),
        ([NOW_MS, -1], True),
    ],
)
def test_records_that_are_too_old_are_refused(codec: Compression, timestamps: list[int], is_taken: bool) -> None:
    batch = batch_of([Record(Offset(n), time, None, b"v") for n, time in enumerate(timestamps)], codec)
    rules = OpeningRules(earliest_timestamp=NOW_MS - 1000)
    if is_taken:
        assert open_batch(batch, rules) is batch
        return
    with pytest.raises(KafkaError) as caught:
        open_batch(batch, rules)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_compression_bomb_is_not_opened_beyond_its_limit(codec: Compression) -> None:
    bomb = batch_of([Record(Offset(0), NOW_MS, b"k", bytes(2 * MIB))], codec)
    assert len(bomb) < MIB / 4

    assert open_batch(bomb, OpeningRules(requires_keys=True, limit_bytes=3 * MIB)) is bomb
    with pytest.raises(ExpandsTooFar):
        open_batch(bomb, OpeningRules(requires_keys=True, limit_bytes=MIB))


def test_the_limit_follows_the_largest_batch_of_the_topic_within_bounds() -> None:
    assert opening_limit_bytes(0) == MIB
    assert opening_limit_bytes(1_048_588) == 16 * 1_048_588
    assert opening_limit_bytes(2**31 - 1) == 256 * MIB


def test_thousands_of_gzip_members_are_not_copied_thousands_of_times() -> None:
    def members_cost_s(count: int) -> float:
        data = zlib.compress(b"k", wbits=31) * count
        begun = time.process_time()
        assert decompress(Compression.GZIP, data) == b"k" * count
        return time.process_time() - begun

    few = min(members_cost_s(4_000) for _ in range(3))
    assert members_cost_s(64_000) < few * 16 * 4  # Quadratic would be 256 times as much.


def _header(count: int, last_offset_delta: int, base_timestamp: int) -> BatchHeader:
    payload = batch_of_payload(b"", count, last_offset_delta=last_offset_delta, base_timestamp=base_timestamp)
    return read_header(payload)


def _outcome(payload: bytes, header: BatchHeader) -> type[Exception] | None:
    try:
        list(records_in_payload(payload, header))
    except CorruptBatch:
        return CorruptBatch
    return None


numbers = st.binary(min_size=1, max_size=3)


fields = st.fixed_dictionaries(
    {},
    optional={
        "timestamp_delta": numbers,
        "offset_delta": st.sampled_from([b"\x00", b"\x02", b"\x04", b"\x01"]),
        "key": st.sampled_from([b"\x01", b"\x00", b"\x02k", b"\x03", b"\x06k"]),
        "value": st.sampled_from([b"\x01", b"\x00", b"\x02v", b"\x05", b"\x81\x01"]),
        "headers": st.sampled_from([b"\x00", b"\x01", b"\x02\x02h\x02v", b"\x02\x01\x01", b"\x02\x00\x01", b"\x04"]),
        "missing_bytes": st.integers(-2, 2),
    },
)


records = st.lists(fields.map(lambda each: raw_record(**cast(Any, each))), max_size=3).map(b"".join)


@given(
    payload=st.one_of(records, st.binary(max_size=40)),
    count=st.integers(0, 4),
    last_offset_delta=st.integers(0, 3),
    base_timestamp=st.sampled_from([0, NOW_MS, 2**63 - 1, -(2**63)]),
)
def test_exactly_those_records_are_refused_that_nobody_could_read(
    payload: bytes, count: int, last_offset_delta: int, base_timestamp: int
) -> None:
    header = _header(count, last_offset_delta, base_timestamp)
    expected = _outcome(payload, header)
    if expected is None:
        check_records(payload, header, requires_keys=False)
        return
    with pytest.raises(expected):
        check_records(payload, header, requires_keys=False)
