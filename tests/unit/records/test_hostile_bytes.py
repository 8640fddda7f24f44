"""Whatever the bytes, the outcome is a result or one kind of error: no other exception, no hang, no huge allocation."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.kernel.errors import KafkaError
from quorate.kernel.ids import Offset
from quorate.records.batch import Compression, check_crc, iterate_batches, read_header
from quorate.records.builder import build_batch
from quorate.records.compression import decompress
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.records.legacy import convert_to_v2, iterate_legacy_records
from quorate.records.record import Record, iterate_keys, iterate_records
from quorate.records.validation import validate_produced
from tests.unit.records.golden.files import BATCH_FILES, MESSAGE_SET_FILES
from tests.unit.records.raw_batches import batch_of_payload

LIMIT_BYTES = 1024 * 1024


def read_batches(data: bytes) -> object:
    return [
        [list(iterate_records(data, position, limit_bytes=LIMIT_BYTES)), list(iterate_keys(data, position))]
        for position, _ in iterate_batches(data)
    ]


def read_first_batch(data: bytes) -> object:
    return list(iterate_records(data, limit_bytes=LIMIT_BYTES))


def read_checked(data: bytes) -> object:
    header = read_header(data)
    check_crc(data, 0, header)
    return header


READERS: list[Callable[[bytes], object]] = [read_batches, read_first_batch, read_checked]


def read_message_set(data: bytes) -> object:
    return list(iterate_legacy_records(data, limit_bytes=LIMIT_BYTES))


@pytest.mark.parametrize("read", READERS)
@given(data=st.binary(max_size=300))
def test_random_bytes(read: Callable[[bytes], object], data: bytes) -> None:
    try:
        read(data)
    except (CorruptBatch, UnsupportedMagic):
        return


@given(data=st.binary(max_size=300), magic=st.sampled_from([b"\x00", b"\x01", b"\x02"]))
def test_random_bytes_behind_a_likely_start(data: bytes, magic: bytes) -> None:
    likely = bytes(8) + (len(data) + 5).to_bytes(4, "big") + bytes(4) + magic + data
    for read in (read_first_batch, read_message_set):
        try:
            read(likely)
        except (CorruptBatch, UnsupportedMagic):
            continue


@given(data=st.binary(max_size=300))
def test_random_bytes_as_message_set(data: bytes) -> None:
    for read in (read_message_set, convert_to_v2):
        try:
            read(data)
        except CorruptBatch:
            continue


@given(data=st.binary(max_size=300), codec=st.sampled_from(Compression), count=st.integers(-2, 50))
def test_random_payload_in_a_sound_batch(data: bytes, codec: Compression, count: int) -> None:
    """The CRC is right, so only the checks inside stand between these bytes and the reader."""
    batch = batch_of_payload(data, count, compression=codec, last_offset_delta=1000)
    for read in (iterate_records, iterate_keys):
        try:
            list(read(batch))
        except CorruptBatch:
            continue


@given(data=st.binary(max_size=300), codec=st.sampled_from(Compression))
def test_random_bytes_as_compressed_data(data: bytes, codec: Compression) -> None:
    try:
        assert len(decompress(codec, data, limit_bytes=LIMIT_BYTES)) <= LIMIT_BYTES
    except CorruptBatch:
        return


@st.composite
def damaged(draw: st.DrawFn, originals: list[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(originals)))
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["flip", "set", "cut", "insert"])):
            case "flip":
                data[position] ^= 1 << draw(st.integers(0, 7))
            case "set":
                data[position] = draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
            case "cut" if len(data) > 1:
                del data[position]
            case _:
                data.insert(position, draw(st.integers(0, 255)))
    return bytes(data)


BATCHES = [path.read_bytes() for path in BATCH_FILES] + [
    build_batch([Record(Offset(index), index, b"k%d" % index, b"v" * index, (("h", b"x"),)) for index in range(20)])
]
MESSAGE_SETS = [path.read_bytes() for path in MESSAGE_SET_FILES]


@given(data=damaged(BATCHES))
def test_damaged_batch_of_a_real_client(data: bytes) -> None:
    for read in READERS:
        try:
            read(data)
        except (CorruptBatch, UnsupportedMagic):
            continue


@given(data=damaged(BATCHES))
def test_damaged_batch_is_never_taken_from_a_producer(data: bytes) -> None:
    """Unless the damage is where a broker writes anyway: the base offset and the leader epoch."""
    try:
        header = validate_produced(data, produce_version=9)
    except KafkaError:
        return
    assert any(data[21:] == original[21:] and header.crc == read_header(original).crc for original in BATCHES)


@given(data=damaged(MESSAGE_SETS))
def test_damaged_message_set_of_a_real_client(data: bytes) -> None:
    for read in (read_message_set, convert_to_v2):
        try:
            read(data)
        except CorruptBatch:
            continue
