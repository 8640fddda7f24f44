import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.records.batch import CONTROL_MASK, TIMESTAMP_TYPE_MASK, TRANSACTIONAL_MASK, Compression, read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.records.validation import validate_produced
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
