"""Our reader against other builders, and our builder against other readers: kafka-python's and aiokafka's."""

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatch as AiokafkaBatch
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.legacy_records import LegacyRecordBatch as AiokafkaLegacyBatch
from aiokafka.record.legacy_records import LegacyRecordBatchBuilder as AiokafkaLegacyBuilder
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch as KafkaPythonBatch
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatch as KafkaPythonLegacyBatch
from kafka.record.legacy_records import LegacyRecordBatchBuilder as KafkaPythonLegacyBuilder

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression, check_crc, read_header
from quorate.records.builder import build_batch
from quorate.records.legacy import iterate_legacy_records
from quorate.records.record import NO_TIMESTAMP, Record, iterate_records
from tests.unit.records.strategies import dense_records

# kafka-python asks for a library per codec; aiokafka has them all in cramjam.
PEERS = [
    pytest.param(KafkaPythonBuilder, KafkaPythonBatch, [Compression.NONE, Compression.GZIP], id="kafka-python"),
    pytest.param(AiokafkaBuilder, AiokafkaBatch, list(Compression), id="aiokafka"),
]
LEGACY_PEERS = [
    pytest.param(
        KafkaPythonLegacyBuilder, KafkaPythonLegacyBatch, [Compression.NONE, Compression.GZIP], id="kafka-python"
    ),
    pytest.param(
        AiokafkaLegacyBuilder,
        AiokafkaLegacyBatch,
        [Compression.NONE, Compression.GZIP, Compression.SNAPPY],
        id="aiokafka",
    ),
]


def as_record(theirs: Any) -> Record:
    timestamp = NO_TIMESTAMP if theirs.timestamp is None else theirs.timestamp
    return Record(Offset(theirs.offset), timestamp, theirs.key, theirs.value, tuple(theirs.headers))


@pytest.mark.parametrize(("new_builder", "_read", "codecs"), PEERS)
@given(data=st.data(), records=dense_records())
def test_their_batches_are_read(
    new_builder: Any, _read: Any, codecs: list[Compression], data: st.DataObject, records: list[Record]
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    builder = new_builder(
        magic=2,
        compression_type=codec.value,
        is_transactional=1,
        producer_id=7,
        producer_epoch=3,
        base_sequence=11,
        batch_size=10**9,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())

    header = read_header(batch)
    check_crc(batch, 0, header)
    assert list(iterate_records(batch)) == records
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.is_transactional) == (
        7,
        3,
        11,
        True,
    )
    assert (header.last_offset_delta, header.record_count) == (len(records) - 1, len(records))
    assert header.max_timestamp == max(record.timestamp for record in records)


@pytest.mark.parametrize(("_builder", "read", "codecs"), PEERS)
@given(data=st.data(), records=dense_records())
def test_they_read_our_batches(
    _builder: Any, read: Any, codecs: list[Compression], data: st.DataObject, records: list[Record]
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    batch = build_batch(
        records,
        compression=codec,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(3),
        base_sequence=11,
        is_transactional=True,
    )

    theirs = read(batch)
    assert theirs.validate_crc()
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (7, 3, 11)
    assert (theirs.is_transactional, theirs.is_control_batch) == (True, False)
    assert theirs.max_timestamp == max(record.timestamp for record in records)
    assert [as_record(record) for record in theirs] == records


@pytest.mark.parametrize(("new_builder", "read", "codecs"), LEGACY_PEERS)
@given(data=st.data(), records=dense_records())
def test_their_message_sets_are_read_as_they_read_them(
    new_builder: Any, read: Any, codecs: list[Compression], data: st.DataObject, records: list[Record]
) -> None:
    codec = data.draw(st.sampled_from(codecs))
    magic = data.draw(st.sampled_from([0, 1]))
    builder = new_builder(magic, codec.value, 10**9)
    for record in records:
        builder.append(record.offset, timestamp=record.timestamp if magic else None, key=record.key, value=record.value)
    message_set = bytearray(builder.build())
    if codec is not Compression.NONE:
        message_set[:8] = records[-1].offset.to_bytes(8, "big")  # What a broker writes into the wrapper.

    ours = list(iterate_legacy_records(message_set))

    assert ours == [
        Record(record.offset, record.timestamp if magic else NO_TIMESTAMP, record.key, record.value)
        for record in records
    ]
    if codec is not Compression.NONE:
        assert [as_record(record) for record in read(bytes(message_set), magic)] == ours
