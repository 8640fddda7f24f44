"""Reads a log as a consumer with ``read_committed`` does, by the rules of Kafka's own consumers."""

from quorate.kernel.ids import Offset, ProducerId
from quorate.records.batch import iterate_batches
from quorate.records.record import Record, iterate_records
from quorate.storage.log import PartitionLog


def last_stable_offset(log: PartitionLog, high_watermark: Offset | None = None) -> Offset:
    """Where such a reader stops; the whole log is committed unless told otherwise."""
    end_offset = log.log_end_offset if high_watermark is None else high_watermark
    log.commit_transactions_up_to(end_offset)
    first_unstable = log.first_unstable_offset
    return end_offset if first_unstable is None else min(end_offset, first_unstable)


def committed_records(log: PartitionLog, limit: Offset, max_bytes: int = 1) -> list[Record]:
    """Those below the limit, which is where the log is stable."""
    records: list[Record] = []
    offset = log.log_start_offset
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
    return [record for record in records if record.offset >= log.log_start_offset]
