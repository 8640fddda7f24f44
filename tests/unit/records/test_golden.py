"""Bytes that real clients and Apache Kafka wrote; golden/README.md says which."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from quorate.kernel.ids import LeaderEpoch
from quorate.records.batch import Compression, TimestampType, check_crc, iterate_batches, patch_offset_and_epoch
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, read_end_transaction_marker
from quorate.records.legacy import convert_to_v2, iterate_legacy_records
from quorate.records.record import NO_TIMESTAMP, Record, iterate_keys, iterate_records
from quorate.records.validation import validate_produced
from tests.unit.records.golden.content import GOLDEN_RECORDS
from tests.unit.records.golden.files import BATCH_FILES, FOLDER, MESSAGE_SET_FILES

CLIENTS = ["java", "confluent-kafka", "kafka-python", "aiokafka"]
CODECS = list(Compression)


def batch_file(client: str, codec: Compression) -> bytes:
    return (FOLDER / f"{client}-{codec.name.lower()}.log").read_bytes()


def test_every_golden_file_is_there() -> None:
    assert len(BATCH_FILES) == len(CLIENTS) * len(CODECS) + 3
    assert len(MESSAGE_SET_FILES) == 15


@pytest.mark.parametrize("path", BATCH_FILES, ids=lambda path: path.stem)
def test_every_batch_has_its_crc(path: Path) -> None:
    data = path.read_bytes()
    for position, header in iterate_batches(data, strict=True):
        check_crc(data, position, header)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_batch_of_each_client_and_codec_is_read(client: str, codec: Compression) -> None:
    data = batch_file(client, codec)
    ((position, header),) = iterate_batches(data, strict=True)
    assert header.compression is codec
    assert list(iterate_records(data, position)) == GOLDEN_RECORDS
    assert list(iterate_keys(data, position)) == [
        (record.offset, record.key, record.value is not None) for record in GOLDEN_RECORDS
    ]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("codec", CODECS)
def test_batch_of_each_client_and_codec_is_taken_from_a_producer(client: str, codec: Compression) -> None:
    assert validate_produced(batch_file(client, codec), produce_version=7).record_count > 0


@pytest.mark.parametrize("client", CLIENTS)
def test_built_batch_is_byte_for_byte_that_of_each_client(client: str) -> None:
    data = batch_file(client, Compression.NONE)
    ((_, header),) = iterate_batches(data)
    built = bytearray(
        build_batch(
            GOLDEN_RECORDS,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
        )
    )
    patch_offset_and_epoch(built, 0, header.base_offset, LeaderEpoch(0))
    assert built == data


def test_log_append_time_of_the_broker() -> None:
    data = (FOLDER / "log-append-time.log").read_bytes()
    ((position, header),) = iterate_batches(data, strict=True)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(iterate_records(data, position)) == [
        replace(record, timestamp=header.max_timestamp) for record in GOLDEN_RECORDS
    ]


def test_markers_of_the_transaction_coordinator() -> None:
    data = (FOLDER / "transactions.log").read_bytes()
    batches = list(iterate_batches(data, strict=True))
    assert [header.is_control for _, header in batches] == [False, True, False, True]
    assert all(header.is_transactional for _, header in batches)
    records = [next(iter(iterate_records(data, position))) for position, _ in batches]
    assert [records[0].value, records[2].value] == [b"committed", b"aborted"]
    assert read_end_transaction_marker(records[1]) == EndTransactionMarker(is_commit=True, coordinator_epoch=0)
    assert read_end_transaction_marker(records[3]) == EndTransactionMarker(is_commit=False, coordinator_epoch=0)


def test_sparse_batch_with_a_delete_horizon_of_the_log_cleaner() -> None:
    data = (FOLDER / "compacted.log").read_bytes()
    position, header = next(iterate_batches(data, strict=True))
    assert header.has_delete_horizon
    assert (header.record_count, header.last_offset_delta) == (3, 3)
    records = list(iterate_records(data, position))
    assert [(record.offset, record.key) for record in records] == [(1, b"b"), (2, b"c"), (3, b"a")]
    assert {record.timestamp for record in records} == {GOLDEN_RECORDS[0].timestamp}
    assert records[1].value is None


def test_rebuilt_sparse_batch_has_the_header_of_the_log_cleaners() -> None:
    data = (FOLDER / "compacted.log").read_bytes()
    position, header = next(iterate_batches(data, strict=True))
    built = build_batch(
        iterate_records(data, position),
        base_offset=header.base_offset,
        last_offset_delta=header.last_offset_delta,
        leader_epoch=header.partition_leader_epoch,
        compression=header.compression,
        delete_horizon_ms=header.base_timestamp,
    )
    ((_, rebuilt),) = iterate_batches(built, strict=True)
    assert rebuilt._replace(crc=header.crc, batch_length=header.batch_length) == header


@pytest.mark.parametrize("path", MESSAGE_SET_FILES, ids=lambda path: path.stem)
def test_message_set_of_each_client_is_read_and_converted(path: Path) -> None:
    data = path.read_bytes()
    expected = [
        Record(record.offset, record.timestamp if "magic1" in path.stem else NO_TIMESTAMP, record.key, record.value)
        for record in GOLDEN_RECORDS
    ]
    assert list(iterate_legacy_records(data)) == expected
    assert list(iterate_records(convert_to_v2(data))) == expected
