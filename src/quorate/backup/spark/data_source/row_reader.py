"""Batches of one partition in, Arrow batches out: decompressed, scanned and cut to the wanted rows.

Rows are gathered until an Arrow batch is worth sending, and never more than a few megabytes of them are held.
"""

from functools import cache
from typing import TYPE_CHECKING, Final

from quorate.backup.spark.data_source.columns import ArrowRows
from quorate.kernel.native import native
from quorate.kernel.ports import Buffer
from quorate.records.batch import MAGIC_OFFSET, TIMESTAMP_TYPE_MASK, BatchHeader, TimestampType
from quorate.records.columnar import (
    ColumnsOfRecords,
    NativeScan,
    Payload,
    RecordColumns,
    RowBounds,
    Scan,
    payload_of,
    scan_payloads,
)
from quorate.records.compression import DEFAULT_LIMIT_BYTES
from quorate.records.legacy import iterate_legacy_records

if TYPE_CHECKING:
    import pyarrow

# Fewer and each of them costs more than its rows; more and a task's memory grows for nothing.
_ROWS_AT_ONCE: Final = 10_000
_BYTES_AT_ONCE: Final = 4 * 1024 * 1024
_LEGACY_ATTRIBUTES_POSITION: Final = 17


class PartitionRows:
    """Told of one partition's batches in order. Whatever a call gives back is to be handed on before the next call."""

    def __init__(self, topic: str, partition: int, bounds: RowBounds, rows: ArrowRows, scan: Scan) -> None:
        self._topic = topic
        self._partition = partition
        self._bounds = bounds
        self._rows = rows
        self._scan = scan
        self._payloads: list[Payload] = []
        self._legacy = ColumnsOfRecords()
        self._record_count = 0
        self._size_bytes = 0
        self.row_count = 0

    def add(self, batch: Buffer, header: BatchHeader | None) -> "list[pyarrow.RecordBatch]":
        """``header`` is None for messages of format 0 and 1. Uncompressed bytes are looked at until ``flush``."""
        return self._add_legacy(batch) if header is None else self._add(batch, header)

    def flush(self) -> "list[pyarrow.RecordBatch]":
        """What is gathered: of the one kind or the other, never of both."""
        payloads, self._payloads = self._payloads, []
        legacy, self._legacy = self._legacy, ColumnsOfRecords()
        self._record_count = self._size_bytes = 0
        if payloads:
            return self._arrow(self._scan(payloads, self._bounds))
        return self._arrow(legacy.finish()) if len(legacy) else []

    def _add(self, batch: Buffer, header: BatchHeader) -> "list[pyarrow.RecordBatch]":
        ready = self.flush() if len(self._legacy) else []
        payload = payload_of(batch, header, limit_bytes=DEFAULT_LIMIT_BYTES)
        self._payloads.append(payload)
        return ready + self._gathered(header.record_count, len(payload.data))

    def _add_legacy(self, message: Buffer) -> "list[pyarrow.RecordBatch]":
        ready = self.flush() if self._payloads else []
        before = len(self._legacy)
        self._legacy.add(iterate_legacy_records(message), _legacy_timestamp_type(message), self._bounds)
        return ready + self._gathered(len(self._legacy) - before, len(message))

    def _gathered(self, record_count: int, size_bytes: int) -> "list[pyarrow.RecordBatch]":
        self._record_count += record_count
        self._size_bytes += size_bytes
        is_enough = self._record_count >= _ROWS_AT_ONCE or self._size_bytes >= _BYTES_AT_ONCE
        return self.flush() if is_enough else []

    def _arrow(self, columns: RecordColumns) -> "list[pyarrow.RecordBatch]":
        if not columns.row_count:
            return []
        self.row_count += columns.row_count
        return [self._rows.batch(self._topic, self._partition, columns)]


def _legacy_timestamp_type(message: Buffer) -> TimestampType | None:
    """Message format 0 has none."""
    if message[MAGIC_OFFSET] == 0:
        return None
    is_append_time = message[_LEGACY_ATTRIBUTES_POSITION] & TIMESTAMP_TYPE_MASK
    return TimestampType.LOG_APPEND_TIME if is_append_time else TimestampType.CREATE_TIME


@cache
def fastest_scan() -> Scan:
    """The same for all tasks of this process."""
    return scan_payloads if native is None else NativeScan(native, warm_memory)


def warm_memory(size_bytes: int) -> memoryview:
    """Out of Arrow's pool: used before, and not filled with zeros, which takes as long as filling it with records."""
    import pyarrow

    return memoryview(pyarrow.allocate_buffer(size_bytes))
