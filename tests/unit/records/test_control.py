import pytest

from quorate.kernel.ids import LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.records.batch import check_crc, read_header
from quorate.records.control import (
    ControlType,
    EndTransactionMarker,
    build_end_transaction_marker,
    control_type_of,
    read_end_transaction_marker,
)
from quorate.records.errors import CorruptBatch
from quorate.records.record import Record, iterate_records


@pytest.mark.parametrize("is_commit", [True, False])
def test_marker_is_a_control_batch_of_its_producer(is_commit: bool) -> None:
    marker = EndTransactionMarker(is_commit=is_commit, coordinator_epoch=9)
    batch = build_end_transaction_marker(
        marker,
        producer_id=ProducerId(7),
        producer_epoch=ProducerEpoch(1),
        timestamp_ms=1000,
        base_offset=Offset(40),
        leader_epoch=LeaderEpoch(3),
    )
    header = read_header(batch)
    check_crc(batch, 0, header)
    assert (header.is_control, header.is_transactional, header.record_count) == (True, True, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 1, -1)
    assert (header.base_offset, header.partition_leader_epoch) == (40, 3)
    (record,) = iterate_records(batch)
    assert read_end_transaction_marker(record) == marker


def control_record(key: str | None, value: str | None = None) -> Record:
    return Record(
        Offset(0), 0, None if key is None else bytes.fromhex(key), None if value is None else bytes.fromhex(value)
    )


def test_other_kinds_of_control_records_are_no_markers() -> None:
    assert read_end_transaction_marker(control_record("00000002")) is None
    assert control_type_of(control_record("00000002")) is ControlType.LEADER_CHANGE
    assert control_type_of(control_record("00000063")) is ControlType.UNKNOWN
    assert read_end_transaction_marker(control_record("00000063")) is None


def test_fields_that_later_versions_add_are_passed_over() -> None:
    later = control_record("00010001aabb", "000100000009ccdd")
    assert read_end_transaction_marker(later) == EndTransactionMarker(is_commit=True, coordinator_epoch=9)


@pytest.mark.parametrize(
    "record",
    [
        control_record(None),
        control_record("0000"),
        control_record("ffff0001", "000000000009"),
        control_record("00000001"),
        control_record("00000001", "0000"),
        control_record("00000001", "ffff00000009"),
    ],
    ids=["no key", "short key", "negative key version", "no value", "short value", "negative value version"],
)
def test_damaged_marker_is_corrupt(record: Record) -> None:
    with pytest.raises(CorruptBatch):
        read_end_transaction_marker(record)
