import struct
import zlib

import pytest
from msgspec.structs import replace

from quorate.kernel.ids import Offset
from quorate.records.batch import Compression, check_crc, read_header
from quorate.records.compression import compress
from quorate.records.errors import CorruptBatch
from quorate.records.legacy import convert_to_v2, iterate_legacy_records
from quorate.records.record import NO_TIMESTAMP, Record, iterate_records

LOG_APPEND_TIME = 0x08
CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4]


def message(
    offset: int,
    value: bytes | None,
    *,
    key: bytes | None = None,
    magic: int = 1,
    attributes: int = 0,
    timestamp: int = 1000,
    crc: int | None = None,
) -> bytes:
    under_crc = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    for field in (key, value):
        under_crc += struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field
    crc = zlib.crc32(under_crc) if crc is None else crc
    return struct.pack(">qiI", offset, len(under_crc) + 4, crc) + under_crc


def wrapper(offset: int, inner: bytes, codec: Compression, *, magic: int = 1, attributes: int = 0) -> bytes:
    return message(offset, compress(codec, inner), magic=magic, attributes=attributes | codec, timestamp=9000)


def test_messages_of_both_formats_are_read() -> None:
    assert list(iterate_legacy_records(message(5, b"v", key=b"k", magic=0) + message(6, None, magic=1))) == [
        Record(Offset(5), NO_TIMESTAMP, b"k", b"v"),
        Record(Offset(6), 1000, None, None),
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_wrapped_messages_of_format_0_have_absolute_offsets(codec: Compression) -> None:
    inner = message(40, b"a", magic=0) + message(42, b"b", magic=0)
    records = list(iterate_legacy_records(wrapper(99, inner, codec, magic=0)))
    assert [(record.offset, record.value) for record in records] == [(40, b"a"), (42, b"b")]


@pytest.mark.parametrize("codec", CODECS)
def test_wrapped_messages_of_format_1_count_from_the_first(codec: Compression) -> None:
    inner = message(0, b"a") + message(1, b"b") + message(3, b"c")
    records = list(iterate_legacy_records(wrapper(103, inner, codec) + message(104, b"d")))
    assert [(record.offset, record.value) for record in records] == [(100, b"a"), (101, b"b"), (103, b"c"), (104, b"d")]
    assert {record.timestamp for record in records} == {1000}


def test_wrapped_messages_of_format_1_may_have_absolute_offsets() -> None:
    inner = message(100, b"a") + message(101, b"b")
    records = iterate_legacy_records(wrapper(101, inner, Compression.GZIP))
    assert [record.offset for record in records] == [100, 101]


def test_wrapper_whose_offset_no_broker_has_set_is_read_from_zero() -> None:
    inner = message(0, b"a") + message(1, b"b")
    records = iterate_legacy_records(wrapper(0, inner, Compression.GZIP))
    assert [record.offset for record in records] == [0, 1]


def test_log_append_time_of_a_wrapper_is_that_of_its_messages() -> None:
    inner = message(0, b"a") + message(1, b"b")
    records = iterate_legacy_records(wrapper(1, inner, Compression.GZIP, attributes=LOG_APPEND_TIME))
    assert [record.timestamp for record in records] == [9000, 9000]


def test_timestamp_bit_means_nothing_in_format_0() -> None:
    inner = message(0, b"a", magic=0)
    records = iterate_legacy_records(wrapper(0, inner, Compression.GZIP, magic=0, attributes=LOG_APPEND_TIME))
    assert [record.timestamp for record in records] == [NO_TIMESTAMP]


def test_partial_message_at_the_end_of_a_fetch_is_passed_over() -> None:
    first = message(5, b"v")
    whole = first + message(6, b"w")
    for size in range(len(first), len(whole)):
        assert [record.offset for record in iterate_legacy_records(whole[:size])] == [5]


VALID = message(0, b"v")

MALFORMED = {
    "wrong CRC": message(0, b"v", crc=1),
    "magic 2": message(0, b"v", magic=2),
    "negative magic": message(0, b"v", magic=-1),
    "tiny length": struct.pack(">qi", 0, 3) + bytes(20),
    "negative length": struct.pack(">qi", 0, -1) + bytes(20),
    "zstd": wrapper(0, VALID, Compression.ZSTD),
    "unknown codec": message(0, b"v", attributes=7),
    "empty wrapper": wrapper(0, b"", Compression.GZIP),
    "null wrapper": message(0, None, attributes=Compression.GZIP),
    "wrapper of garbage": message(0, b"garbage", attributes=Compression.GZIP),
    "wrapper of a partial message": wrapper(0, VALID + VALID[:20], Compression.GZIP),
    "wrapper in a wrapper": wrapper(0, wrapper(0, VALID, Compression.GZIP), Compression.GZIP),
    "wrapper of another format": wrapper(0, message(0, b"v", magic=0), Compression.GZIP),
    "lz4 that is no frame": message(0, b"garbage", attributes=Compression.LZ4),
}


@pytest.mark.parametrize("message_set", MALFORMED.values(), ids=MALFORMED.keys())
def test_nonsense_is_corrupt(message_set: bytes) -> None:
    with pytest.raises(CorruptBatch):
        list(iterate_legacy_records(message_set))


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        (struct.pack(">i", -2) + struct.pack(">i", -1), "negative length"),
        (struct.pack(">i", 100) + b"key" + struct.pack(">i", -1), "ends early"),
        (struct.pack(">i", 2**31 - 1) + b"key" + struct.pack(">i", -1), "ends early"),
        (struct.pack(">ii", -1, 100) + b"value", "do not fill it"),
        (struct.pack(">ii", -1, 3) + b"value", "do not fill it"),
        (struct.pack(">i", -1), "ends early"),
    ],
    ids=["negative", "key too long", "key far too long", "value too long", "bytes behind", "no value"],
)
def test_field_that_does_not_fit_its_message_is_corrupt(fields: bytes, complaint: str) -> None:
    under_crc = struct.pack(">bbq", 1, 0, 1000) + fields
    message_set = struct.pack(">qiI", 0, len(under_crc) + 4, zlib.crc32(under_crc)) + under_crc
    with pytest.raises(CorruptBatch, match=complaint):
        list(iterate_legacy_records(message_set))


def test_wrapper_that_expands_beyond_the_limit_is_refused() -> None:
    message_set = wrapper(0, message(0, bytes(100_000)), Compression.GZIP)
    with pytest.raises(CorruptBatch):
        list(iterate_legacy_records(message_set, limit_bytes=50_000))


@pytest.mark.parametrize("codec", [Compression.NONE, *CODECS])
def test_converted_set_keeps_records_offsets_and_codec(codec: Compression) -> None:
    inner = [message(0, b"a", key=b"k", timestamp=5), message(3, None, key=b"k", timestamp=2)]
    message_set = b"".join(inner) if codec is Compression.NONE else wrapper(3, b"".join(inner), codec)

    batch = convert_to_v2(message_set)

    header = read_header(batch)
    check_crc(batch, 0, header)
    assert header.compression is codec
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (0, 3, 2)
    assert list(iterate_records(batch)) == list(iterate_legacy_records(message_set))


def test_converted_set_can_be_numbered_like_a_producers_batch() -> None:
    message_set = message(0, b"a") + message(0, b"b") + message(0, b"c")
    batch = convert_to_v2(message_set, base_offset=Offset(10))
    assert list(iterate_records(batch)) == [
        replace(record, offset=10 + index) for index, record in enumerate(iterate_legacy_records(message_set))
    ]
    assert read_header(batch).last_offset_delta == 2


@pytest.mark.parametrize("message_set", [b"", VALID[:-1], VALID + VALID, message(0, b"") + message(2**40, b"")])
def test_set_that_no_batch_can_hold_is_not_converted(message_set: bytes) -> None:
    with pytest.raises(CorruptBatch):
        convert_to_v2(message_set)
