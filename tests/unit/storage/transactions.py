"""Transactional batches and markers for the tests of the log."""

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.records.record import Record
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog
from tests.simulation.committed_reader import committed_records, last_stable_offset
from tests.unit.storage.batches import EPOCH, NOW_MS, append

FIRST = ProducerId(7)
SECOND = ProducerId(8)


def transactional(producer_id: ProducerId, sequence: int, *values: bytes, epoch: int = 0, key: bytes = b"key") -> bytes:
    records = [Record(Offset(delta), NOW_MS, key, value) for delta, value in enumerate(values)]
    return build_batch(
        records,
        leader_epoch=EPOCH,
        producer_id=producer_id,
        producer_epoch=ProducerEpoch(epoch),
        base_sequence=sequence,
        is_transactional=True,
    )


def write(log: PartitionLog, producer_id: ProducerId, sequence: int, *values: bytes, epoch: int = 0) -> AppendInfo:
    return append(log, transactional(producer_id, sequence, *values, epoch=epoch))


def end(
    log: PartitionLog,
    producer_id: ProducerId,
    *,
    commit: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    transaction_version: int = 1,
) -> AppendInfo:
    return log.append_marker(
        TransactionEnd(
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(epoch),
            marker=EndTransactionMarker(is_commit=commit, coordinator_epoch=coordinator_epoch),
            transaction_version=transaction_version,
        ),
        leader_epoch=EPOCH,
        now_ms=NOW_MS,
    )


def committed_values(log: PartitionLog, max_bytes: int = 1) -> list[bytes | None]:
    return [record.value for record in committed_records(log, last_stable_offset(log), max_bytes)]
