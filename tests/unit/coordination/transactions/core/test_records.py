import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.coordination.core.errors import CorruptCoordinatorRecord
from quorate.coordination.core.partitioning import partition_for
from quorate.coordination.transactions.core.records import TransactionRecord, decode_record, encode_key, encode_value
from quorate.coordination.transactions.core.transaction import Transaction, TransactionState
from quorate.kernel.ids import PartitionIndex, ProducerEpoch, ProducerId, TopicName, TopicPartition, TransactionalId

ONGOING = Transaction(
    producer_id=ProducerId(7),
    previous_producer_id=ProducerId(6),
    producer_epoch=ProducerEpoch(3),
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset(TopicPartition(TopicName("ab"), PartitionIndex(index)) for index in (0, 2)),
    last_update_ms=200,
    start_ms=100,
    client_version=2,
)
RECORD = TransactionRecord(transactional_id=TransactionalId("tx"), transaction=ONGOING)
#: Version 1: producer id, epoch, timeout, state; one topic with two partitions; times; tagged fields 0 and 2.
VALUE = (
    struct.pack(">hqhib", 1, 7, 3, 60_000, 1)
    + b"\x02\x03ab\x03"
    + struct.pack(">ii", 0, 2)
    + b"\x00"
    + struct.pack(">qq", 200, 100)
    + b"\x02\x00\x08"
    + struct.pack(">q", 6)
    + b"\x02\x02"
    + struct.pack(">h", 2)
)


def test_records_are_written_as_kafka_writes_them() -> None:
    assert encode_key(RECORD) == b"\x00\x00\x00\x02tx"
    assert encode_value(RECORD) == VALUE


def test_an_empty_transactional_id_has_no_list_of_partitions() -> None:
    empty = Transaction(producer_id=ProducerId(7), producer_epoch=ProducerEpoch(0), timeout_ms=1, last_update_ms=5)

    encoded = encode_value(TransactionRecord(transactional_id=TransactionalId("tx"), transaction=empty))

    assert encoded == struct.pack(">hqhib", 1, 7, 0, 1, 0) + b"\x00" + struct.pack(">qq", 5, -1) + b"\x00"


def test_version_0_of_older_brokers_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 7, 3, 60_000, 4) + struct.pack(">i", 1) + b"\x00\x02ab" + struct.pack(">ii", 1, 2)
    ) + struct.pack(">qq", 200, 100)

    record = decode_record(encode_key(RECORD), value)

    assert record is not None
    assert record.transaction is not None
    assert record.transaction.state is TransactionState.COMPLETE_COMMIT
    assert record.transaction.partitions == {("ab", 2)}
    assert record.transaction.client_version == 0


def test_a_tombstone_forgets_the_id_and_other_kinds_of_keys_are_passed_over() -> None:
    forgets = TransactionRecord(transactional_id=TransactionalId("tx"), transaction=None)

    assert encode_value(forgets) is None
    assert decode_record(encode_key(forgets), None) == forgets
    assert decode_record(b"\x00\x01\x00\x02tx", VALUE) is None


def test_tagged_fields_of_later_releases_are_passed_over() -> None:
    newer = VALUE.replace(b"\x02\x00\x08", b"\x03\x00\x08", 1) + b"\x63\x01\xff"

    assert decode_record(encode_key(RECORD), newer) == RECORD


@pytest.mark.parametrize(
    "value", [b"", VALUE[:-1], VALUE[:20], struct.pack(">hqhib", 1, 7, 3, 60_000, 99) + VALUE[17:]]
)
def test_what_no_schema_explains_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptCoordinatorRecord):
        decode_record(encode_key(RECORD), value)


@settings(deadline=None)
@given(
    transaction=st.builds(
        Transaction,
        producer_id=st.integers(0, 2**63 - 1),
        producer_epoch=st.integers(0, 2**15 - 1),
        timeout_ms=st.integers(1, 2**31 - 1),
        last_update_ms=st.integers(0, 2**62),
        state=st.sampled_from(list(TransactionState)[1:6]),
        previous_producer_id=st.integers(-1, 2**62),
        next_producer_id=st.integers(-1, 2**62),
        last_producer_epoch=st.just(-1),
        partitions=st.frozensets(st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 99))),
        start_ms=st.integers(-1, 2**62),
        client_version=st.integers(0, 2),
    )
)
def test_what_is_written_is_read(transaction: Transaction) -> None:
    record = TransactionRecord(transactional_id=TransactionalId("tx"), transaction=transaction)

    assert decode_record(encode_key(record), encode_value(record)) == record


def test_ids_are_placed_as_java_hashes_them() -> None:
    assert partition_for(TransactionalId("orders-readers"), 50) == 879800024 % 50
