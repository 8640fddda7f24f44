"""Reads ranges of offsets from a cluster's partition leaders as Arrow batches. Runs in a Spark worker; does I/O.

Ranges may be cut anywhere: a batch across the end of one is fetched for both of its neighbours, and each takes the
records that are its own.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from quorate.backup.planning.ranges import OffsetRange
from quorate.backup.spark.data_source.columns import ArrowRows
from quorate.backup.spark.data_source.row_reader import PartitionRows, fastest_scan
from quorate.backup.spark.data_source.transactions import AbortedInAnswer
from quorate.client.config import ClientConfig
from quorate.client.errors import LogTruncated, OffsetOutOfRange, TopicReplaced
from quorate.client.fetch.batches import FetchedBatches, FetchRange, IsolationLevel, RangeFailed
from quorate.client.kafka_client import KafkaClient
from quorate.kernel.errors import QuorateError
from quorate.kernel.ids import NO_TOPIC_ID, Offset, TopicPartition
from quorate.records.columnar import RowBounds

if TYPE_CHECKING:
    import pyarrow

_RANGES_AT_ONCE: Final = 64
_FETCH_BYTES: Final = 4 * 1024 * 1024


class LiveTask(msgspec.Struct, frozen=True, kw_only=True):
    """What one Spark task reads. No two ranges are of the same partition."""

    client: ClientConfig
    ranges: list[OffsetRange]
    isolation: IsolationLevel
    start_ms: int
    end_ms: int
    columns: tuple[str, ...]
    fail_on_data_loss: bool


class DataLoss(QuorateError):
    """Records that were to be read are no longer there."""

    def __init__(self, cause: str) -> None:
        super().__init__(f"{cause}; to read on without them, set the option fail_on_data_loss to false")


def read_live(task: LiveTask) -> "Iterator[pyarrow.RecordBatch]":
    with KafkaClient(task.client) as client:
        for index in range(0, len(task.ranges), _RANGES_AT_ONCE):
            yield from _read_together(client, task, task.ranges[index : index + _RANGES_AT_ONCE])


def _read_together(
    client: KafkaClient, task: LiveTask, ranges: Sequence[OffsetRange]
) -> "Iterator[pyarrow.RecordBatch]":
    arrow, scan = ArrowRows(task.columns), fastest_scan()
    rows = {
        TopicPartition(each.topic, each.partition): PartitionRows(
            each.topic,
            each.partition,
            RowBounds(each.start_offset, each.end_offset, task.start_ms, task.end_ms),
            arrow,
            scan,
        )
        for each in ranges
    }
    wanted = [_fetch_range(each) for each in ranges]
    while wanted:
        again: list[FetchRange] = []
        pieces = client.fetch_ranges(
            wanted, isolation=task.isolation, max_bytes=_FETCH_BYTES, include_batch_across_end=True
        )
        for piece in pieces:
            if isinstance(piece, RangeFailed):
                again += _after_failure(piece, fail_on_data_loss=task.fail_on_data_loss)
            else:
                yield from _rows_of(piece, rows[piece.range.name])
        wanted = again


def _rows_of(piece: FetchedBatches, rows: PartitionRows) -> "Iterator[pyarrow.RecordBatch]":
    aborted = AbortedInAnswer(piece.aborted_transactions)
    for each in piece.walk():
        batch = piece.data[each.position : each.position + each.size_bytes]
        if each.header is None or not aborted.excludes(each.header, batch):
            yield from rows.add(batch, each.header)
    # The piece's memory is used again from here on.
    yield from rows.flush()


def _after_failure(failed: RangeFailed, *, fail_on_data_loss: bool) -> list[FetchRange]:
    """What is left to be read where records are missing and their reader said to go on."""
    error = failed.error
    if not isinstance(error, OffsetOutOfRange | LogTruncated | TopicReplaced):
        raise error
    if fail_on_data_loss:
        raise DataLoss(str(error)) from error
    if isinstance(error, OffsetOutOfRange) and error.is_below_log_start:
        start = Offset(min(error.log_start_offset, failed.range.end_offset))
        return [msgspec.structs.replace(failed.range, start_offset=start)]
    return []


def _fetch_range(each: OffsetRange) -> FetchRange:
    return FetchRange(
        topic=each.topic,
        partition=each.partition,
        start_offset=each.start_offset,
        end_offset=each.end_offset,
        topic_id=None if each.topic_id == NO_TOPIC_ID else each.topic_id,
    )
