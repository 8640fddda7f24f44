"""Reads a log as a consumer with ``read_committed`` does, by the rules of Kafka's own consumers."""

from collections.abc import Iterator, Sequence
from operator import itemgetter

from quorate.kernel.ids import Offset, ProducerId
from quorate.records.batch import BatchHeader, iterate_batches
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
        aborted = [(one.producer_id, one.first_offset) for one in log.aborted_transactions(piece, offset)]
        for position, header, is_shown in judged_batches(content, aborted):
            offset = header.next_offset
            if is_shown:
                records += iterate_records(content, position)
    return [record for record in records if record.offset >= log.log_start_offset]


def judged_batches(
    content: bytes | memoryview, aborted: Sequence[tuple[ProducerId, Offset]]
) -> Iterator[tuple[int, BatchHeader, bool]]:
    """Position and header of each batch, and whether its records are shown, by the aborted transactions told of."""
    still_to_come = sorted(aborted, key=itemgetter(1))
    under_way: set[ProducerId] = set()
    for position, header in iterate_batches(content, strict=True):
        while still_to_come and still_to_come[0][1] <= header.last_offset:
            under_way.add(still_to_come.pop(0)[0])
        if header.is_control:
            under_way.discard(header.producer_id)
        yield position, header, not (header.is_control or (header.is_transactional and header.producer_id in under_way))
