"""Transactional batches and markers for the tests of the log."""

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import iterate_batches
from quorate.records.builder import build_batch
from quorate.records.control import EndTransactionMarker, TransactionEnd
from quorate.records.record import Record, iterate_records
from quorate.storage.appending import AppendInfo
from quorate.storage.log import PartitionLog
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


def last_stable_offset(log: PartitionLog, high_watermark: Offset | None = None) -> Offset:
    """Where a reader of committed records stops; the whole log is committed unless told otherwise."""
    end_offset = log.log_end_offset if high_watermark is None else high_watermark
    log.commit_transactions_up_to(end_offset)
    first_unstable = log.first_unstable_offset
    return end_offset if first_unstable is None else min(end_offset, first_unstable)


def committed_values(log: PartitionLog, max_bytes: int = 1) -> list[bytes | None]:
    return [record.value for record in committed_records(log, max_bytes)]


def committed_records(log: PartitionLog, max_bytes: int = 1) -> list[Record]:
    """What a consumer with ``read_committed`` makes of the log, by the rules of Kafka's own consumers."""
    records: list[Record] = []
    offset, limit = log.log_start_offset, last_stable_offset(log)
    while offset < limit:
        piece = log.read(offset, max_bytes=max_bytes, up_to_offset=limit, minimum_one_batch=True)
        content = piece.read()
        if not content:
            break
        still_to_come = log.aborted_transactions(piece, offset)
        aborted: set[ProducerId] = set()
        for position, header in iterate_batches(content, strict=True):
            offset = header.next_offset
            while still_to_come and still_to_come[0].first_offset <= header.last_offset:
                aborted.add(still_to_come.pop(0).producer_id)
            if header.is_control:
                aborted.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborted):
                records += iterate_records(content, position)
    return records
