"""Control batches: the marker that ends a transaction in a partition.

A control batch holds one control record. Its key has its kind, its value the epoch of the coordinator.
"""

import struct
from enum import IntEnum

import msgspec

from quorate.kernel.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer
from quorate.records.builder import FIRST_OFFSET, build_batch
from quorate.records.errors import CorruptBatch
from quorate.records.record import Record, iterate_records

#: The version of transactions in which the producer's epoch grows with every transaction (KIP-890).
EPOCH_PER_TRANSACTION = 2
_VERSION = 0
_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")


class ControlType(IntEnum):
    """The kinds of control records; readers skip those they do not know."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6
    UNKNOWN = -1


class EndTransactionMarker(msgspec.Struct, frozen=True, kw_only=True):
    """How the producer's open transaction ended, and the epoch of the coordinator that says so."""

    is_commit: bool
    coordinator_epoch: int


class TransactionEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a producer's transaction, as its coordinator asks the leader of a partition to write it."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    marker: EndTransactionMarker
    transaction_version: int = 0  # From 2 on the epoch is one that no record of the transaction has (KIP-890).


def build_end_transaction_marker(
    marker: EndTransactionMarker,
    *,
    producer_id: ProducerId,
    producer_epoch: ProducerEpoch,
    timestamp_ms: int,
    base_offset: Offset = FIRST_OFFSET,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
) -> bytes:
    control_type = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    record = Record(
        offset=base_offset,
        timestamp=timestamp_ms,
        key=_KEY.pack(_VERSION, control_type),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return build_batch(
        [record],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        is_transactional=True,
        is_control=True,
    )


def control_type_of(record: Record) -> ControlType:
    """The kind of a control record. Fields that later versions add to the key are passed over."""
    if record.key is None or len(record.key) < _KEY.size:
        raise CorruptBatch("a control record without a type")
    version, number = _KEY.unpack_from(record.key)
    if version < 0:
        raise CorruptBatch(f"control record of version {version}")
    try:
        return ControlType(number)
    except ValueError:
        return ControlType.UNKNOWN


def read_end_transaction_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a control record, or None where the record is of another kind."""
    control_type = control_type_of(record)
    if control_type not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptBatch("a transaction marker without a coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptBatch(f"transaction marker of version {version}")
    return EndTransactionMarker(is_commit=control_type is ControlType.COMMIT, coordinator_epoch=coordinator_epoch)


def marker_of_batch(buffer: Buffer, position: int = 0) -> EndTransactionMarker | None:
    """The marker in the control batch at the position; None in one of another kind, or one that compaction emptied."""
    record = next(iter(iterate_records(buffer, position)), None)
    return None if record is None else read_end_transaction_marker(record)
