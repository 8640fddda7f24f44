import struct
from typing import Any

import pytest
from crc32c import crc32c

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import (
    HEADER_SIZE_BYTES,
    BatchHeader,
    Compression,
    TimestampType,
    check_crc,
    crc_of,
    detach,
    iterate_batches,
    patch_log_append_time,
    patch_offset_and_epoch,
    patch_producer,
    read_batches,
    read_header,
)
from quorate.records.builder import build_batch
from quorate.records.errors import CorruptBatch, UnsupportedMagic
from quorate.records.record import Record, iterate_records

FIELDS: dict[str, Any] = {
    "base_offset": 1 << 40,
    "batch_length": 49,
    "partition_leader_epoch": 7,
    "magic": 2,
    "crc": 0xFEDCBA98,
    "attributes": 0,
    "last_offset_delta": 9,
    "base_timestamp": 1_700_000_000_000,
    "max_timestamp": 1_700_000_000_999,
    "producer_id": 1 << 33,
    "producer_epoch": 3,
    "base_sequence": 100,
    "record_count": 10,
}


def header_with(**changes: int) -> BatchHeader:
    return BatchHeader(**(FIELDS | changes))


def encode(header: BatchHeader) -> bytes:
    return struct.pack(">qiibIhiqqqhii", *header)


def three_batches() -> bytearray:
    return bytearray(
        b"".join(
            build_batch(
                [Record(Offset(offset + index), 1000 + index, b"key", b"value") for index in range(3)],
                base_offset=Offset(offset),
            )
            for offset in (0, 3, 6)
        )
    )


def test_header_is_read_field_by_field() -> None:
    header = header_with()
    assert read_header(b"before" + encode(header), 6) == header


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview])
def test_any_buffer_will_do(wrap: Any) -> None:
    buffer = wrap(bytes(three_batches()))
    positions = [position for position, _ in iterate_batches(buffer)]
    assert len(positions) == 3
    check_crc(buffer, positions[1], read_header(buffer, positions[1]))


def test_offsets_and_size_follow_from_the_header() -> None:
    header = header_with(base_offset=100, last_offset_delta=9, batch_length=188)
    assert (header.last_offset, header.next_offset, header.size_bytes) == (109, 110, 200)


@pytest.mark.parametrize(
    ("base_sequence", "last_offset_delta", "last_sequence"),
    [(0, 0, 0), (5, 4, 9), (2**31 - 1, 0, 2**31 - 1), (2**31 - 1, 1, 0), (2**31 - 3, 9, 6), (-1, 4, -1)],
)
def test_sequence_starts_again_from_zero_after_its_maximum(
    base_sequence: int, last_offset_delta: int, last_sequence: int
) -> None:
    header = header_with(base_sequence=base_sequence, last_offset_delta=last_offset_delta)
    assert header.last_sequence == last_sequence


@pytest.mark.parametrize("codec", list(Compression))
def test_compression_is_in_the_lowest_bits(codec: Compression) -> None:
    assert header_with(attributes=0x78 | codec).compression is codec


def test_unknown_compression_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        _ = header_with(attributes=5).compression


@pytest.mark.parametrize(
    ("attributes", "timestamp_type", "is_transactional", "is_control", "has_delete_horizon"),
    [
        (0x00, TimestampType.CREATE_TIME, False, False, False),
        (0x08, TimestampType.LOG_APPEND_TIME, False, False, False),
        (0x10, TimestampType.CREATE_TIME, True, False, False),
        (0x20, TimestampType.CREATE_TIME, False, True, False),
        (0x40, TimestampType.CREATE_TIME, False, False, True),
        (0x7C, TimestampType.LOG_APPEND_TIME, True, True, True),
    ],
)
def test_each_attribute_has_its_bit(
    attributes: int, timestamp_type: TimestampType, is_transactional: bool, is_control: bool, has_delete_horizon: bool
) -> None:
    header = header_with(attributes=attributes)
    assert header.timestamp_type is timestamp_type
    assert header.is_transactional is is_transactional
    assert header.is_control is is_control
    assert header.has_delete_horizon is has_delete_horizon


@pytest.mark.parametrize("size", [0, 1, 16, 17, 60])
def test_header_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(CorruptBatch) as caught:
        read_header(encode(header_with())[:size])
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("batch_length", [48, 0, -1, -(2**31)])
def test_length_below_a_header_is_corrupt(batch_length: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(encode(header_with(batch_length=batch_length)))


@pytest.mark.parametrize("magic", [3, 127, -1])
def test_unknown_magic_is_corrupt(magic: int) -> None:
    with pytest.raises(CorruptBatch):
        read_header(encode(header_with(magic=magic)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("size", [26, 34, 61])
def test_old_message_formats_are_told_apart_from_damage(magic: int, size: int) -> None:
    with pytest.raises(UnsupportedMagic) as caught:
        read_header(encode(header_with(magic=magic))[:size])
    assert caught.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert caught.value.magic == magic


def test_every_batch_of_a_buffer_is_found_not_only_the_first() -> None:
    buffer = three_batches()
    assert [header.base_offset for _, header in iterate_batches(buffer)] == [0, 3, 6]
    second = next(position for position, header in iterate_batches(buffer) if header.base_offset == 3)
    assert [header.base_offset for _, header in iterate_batches(buffer, second)] == [3, 6]


def test_partial_batch_at_the_end_of_a_fetch_is_passed_over() -> None:
    buffer = three_batches()
    last = [position for position, _ in iterate_batches(buffer)][-1]
    for size in range(last, len(buffer)):
        assert [header.base_offset for _, header in iterate_batches(buffer[:size])] == [0, 3]


def test_partial_batch_is_corrupt_where_all_must_be_there() -> None:
    buffer = three_batches()
    last = [position for position, _ in iterate_batches(buffer)][-1]
    for size in range(last + 1, len(buffer)):
        with pytest.raises(CorruptBatch):
            list(iterate_batches(buffer[:size], strict=True))
        with pytest.raises(CorruptBatch):
            read_batches(buffer[:size])
    assert len(list(iterate_batches(buffer, strict=True))) == 3
    assert list(iterate_batches(b"", strict=True)) == []


def test_batches_are_read_alike_whether_there_is_one_or_several() -> None:
    buffer = three_batches()
    assert read_batches(buffer) == list(iterate_batches(buffer))
    second = read_batches(buffer)[1][0]
    assert read_batches(buffer[:second]) == [(0, read_header(buffer))]
    assert read_batches(b"") == []


def test_nonsense_between_batches_is_not_taken_for_a_partial_batch() -> None:
    buffer = three_batches()
    with pytest.raises(CorruptBatch):
        list(iterate_batches(buffer + bytes([9]) * 100))
    with pytest.raises(CorruptBatch):
        list(iterate_batches(buffer + bytes([9]) * (HEADER_SIZE_BYTES - 1)))


def test_crc_is_castagnoli_from_byte_21_to_the_end_of_the_batch() -> None:
    batch = build_batch([Record(Offset(0), 1, b"k", b"v")])
    header = read_header(batch)
    assert crc_of(batch + b"other", 0, header) == header.crc == crc32c(batch[21:])


def test_every_bit_from_byte_21_is_under_the_crc() -> None:
    batch = build_batch([Record(Offset(0), 1, b"k", b"v")])
    for position in range(21, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptBatch):
            check_crc(damaged, 0, read_header(damaged))


def test_crc_of_a_batch_that_is_not_all_there_is_refused() -> None:
    batch = build_batch([Record(Offset(0), 1, b"k", b"v")])
    with pytest.raises(CorruptBatch):
        crc_of(batch[:-1], 0, read_header(batch))


def test_offset_and_epoch_are_patched_without_touching_anything_else() -> None:
    buffer = three_batches()
    original = bytes(buffer)
    position, before = list(iterate_batches(buffer))[1]

    patch_offset_and_epoch(buffer, position, Offset(2**62), LeaderEpoch(2**31 - 1))

    after = read_header(buffer, position)
    assert after == before._replace(base_offset=Offset(2**62), partition_leader_epoch=LeaderEpoch(2**31 - 1))
    check_crc(buffer, position, after)
    changed = [index for index in range(len(buffer)) if buffer[index] != original[index]]
    assert {index - position for index in changed} <= {*range(8), *range(12, 16)}


def test_patched_memoryview_patches_the_buffer_behind_it() -> None:
    buffer = three_batches()
    patch_offset_and_epoch(memoryview(buffer), 0, Offset(77), LeaderEpoch(5))
    assert read_header(buffer).base_offset == 77


def test_log_append_time_is_the_time_of_every_record() -> None:
    buffer = three_batches()
    position, before = list(iterate_batches(buffer))[1]

    patch_log_append_time(buffer, position, 5_000_000_000_000)

    after = read_header(buffer, position)
    check_crc(buffer, position, after)
    assert after.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert (after.base_timestamp, after.max_timestamp) == (before.base_timestamp, 5_000_000_000_000)
    assert {record.timestamp for record in iterate_records(buffer, position)} == {5_000_000_000_000}
    assert {record.timestamp for record in iterate_records(buffer)} == {1000, 1001, 1002}


@pytest.mark.parametrize("record_count", [0, 1, 500])
def test_producer_is_patched_with_the_crc_of_the_whole(record_count: int) -> None:
    records = [Record(Offset(index), 5, b"key", b"value-%d" % index, ()) for index in range(record_count)]
    stored = build_batch(records, last_offset_delta=max(record_count, 1) - 1, compression=Compression.ZSTD)
    batch = detach(stored)

    patch_producer(batch, ProducerId(2**40), ProducerEpoch(12), 34)

    sent = b"".join(batch)
    before, after = read_header(stored), read_header(sent)
    check_crc(sent, 0, after)
    assert batch.size_bytes == len(sent) == len(stored)
    assert after == before._replace(
        producer_id=ProducerId(2**40), producer_epoch=ProducerEpoch(12), base_sequence=34, crc=after.crc
    )


def test_records_stay_where_they_are_and_the_stored_header_as_it_was() -> None:
    stored = bytearray(build_batch([Record(Offset(0), 5, b"key", b"value", ())]))
    before = bytes(stored)

    batch = detach(stored)
    patch_producer(batch, ProducerId(1), ProducerEpoch(1), 1)

    assert batch.records.obj is stored
    assert stored == before
