"""The records of many batches as columns, in the memory layout of Arrow, without an object for each record.

Two scans give the same columns, byte for byte: ``scan_payloads``, which needs nothing but Python, and ``NativeScan``,
which leaves the walk over the records to compiled code (``native/columns.c``). Both refuse exactly the bytes that
``record`` refuses.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from quorate.kernel.native import NativeModule
from quorate.kernel.ports import Buffer
from quorate.records.batch import HEADER_SIZE_BYTES, BatchHeader, Compression, TimestampType
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP, Record, read_payload, records_in_payload

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_MICROSECONDS_PER_MILLISECOND: Final = 1000
_MAX_MILLISECONDS: Final = 2**63 // _MICROSECONDS_PER_MILLISECOND
_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_MAX_COLUMN_BYTES: Final = 2**31 - 1

#: Allocates writable memory of a size, with any content.
Allocate = Callable[[int], Buffer]


class RowBounds(NamedTuple):
    """The records that are wanted. The end of the offsets is excluded; both ends of the times are included."""

    start_offset: int = INT64_MIN
    end_offset: int = INT64_MAX
    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX

    def include(self, record: Record) -> bool:
        return self.start_offset <= record.offset < self.end_offset and self.start_ms <= record.timestamp <= self.end_ms


_EVERYTHING: Final = RowBounds()


class Payload(NamedTuple):
    """A batch whose records are decompressed."""

    header: BatchHeader
    data: Buffer


class BinaryColumn(NamedTuple):
    """Texts or bytes back to back, their ends as 32-bit numbers, and a bit for each that is not null."""

    validity: Buffer | None  # None where nothing is null.
    ends: Buffer  # One more than there are rows: the first is 0.
    data: Buffer


class RecordColumns(NamedTuple):
    """Numbers are in the byte order of the machine, as Arrow has them."""

    row_count: int
    offsets: Buffer  # 64 bits each.
    timestamps: Buffer  # Microseconds since 1970, 64 bits each.
    timestamp_validity: Buffer | None  # Null where a record has no time, or none that 64 bits of microseconds hold.
    timestamp_types: Buffer  # 32 bits each.
    timestamp_type_validity: Buffer | None
    keys: BinaryColumn
    values: BinaryColumn
    header_ends: Buffer  # Where each row's headers end in the three columns below; one more than there are rows.
    header_count: int
    header_keys: BinaryColumn
    header_values: BinaryColumn


Scan = Callable[[Sequence[Payload], RowBounds], RecordColumns]


def payload_of(batch: Buffer, header: BatchHeader, *, limit_bytes: int) -> Payload:
    """The records of one batch of magic 2. Uncompressed ones are not copied: they live as long as ``batch`` does."""
    if header.compression is Compression.NONE and header.size_bytes <= len(batch):
        if header.record_count < 0:
            raise CorruptBatch(f"a batch of {header.record_count} records")
        return Payload(header, memoryview(batch)[HEADER_SIZE_BYTES : header.size_bytes])
    return Payload(header, read_payload(batch, 0, header, limit_bytes=limit_bytes))


def scan_payloads(payloads: Sequence[Payload], bounds: RowBounds) -> RecordColumns:
    """The scan that needs nothing but Python."""
    columns = ColumnsOfRecords()
    for header, data in payloads:
        columns.add(records_in_payload(bytes(data), header), header.timestamp_type, bounds)
    return columns.finish()


class ColumnsOfRecords:
    """Gathers records, and makes columns of them at the end, column by column: a loop over rows takes twice as long."""

    def __init__(self) -> None:
        self._records: list[Record] = []
        self._timestamp_types: list[TimestampType | None] = []

    def __len__(self) -> int:
        return len(self._records)

    def add(self, records: Iterable[Record], timestamp_type: TimestampType | None, bounds: RowBounds) -> None:
        """``timestamp_type`` is None for message format 0, which has no times."""
        records = list(records)
        if records and records[-1].offset > INT64_MAX:
            raise CorruptBatch(f"offset {records[-1].offset} has more than 64 bits")
        if bounds != _EVERYTHING:
            records = [record for record in records if bounds.include(record)]
        self._records += records
        self._timestamp_types += [timestamp_type] * len(records)

    def finish(self) -> RecordColumns:
        records, types = self._records, self._timestamp_types
        times = [_microseconds(record.timestamp) for record in records]
        headers = [header for record in records for header in record.headers]
        return RecordColumns(
            row_count=len(records),
            offsets=array("q", [record.offset for record in records]).tobytes(),
            timestamps=array("q", [time or 0 for time in times]).tobytes(),
            timestamp_validity=_validity(times),
            timestamp_types=array("i", [kind or 0 for kind in types]).tobytes(),
            timestamp_type_validity=_validity(types),
            keys=_binary_column([record.key for record in records]),
            values=_binary_column([record.value for record in records]),
            header_ends=_ends([len(record.headers) for record in records]),
            header_count=len(headers),
            header_keys=_binary_column([key.encode("utf-8", "surrogateescape") for key, _ in headers]),
            header_values=_binary_column([value for _, value in headers]),
        )


def _microseconds(timestamp: int) -> int | None:
    if timestamp == NO_TIMESTAMP or not -_MAX_MILLISECONDS <= timestamp <= _MAX_MILLISECONDS:
        return None
    return timestamp * _MICROSECONDS_PER_MILLISECOND


def _binary_column(values: Sequence[bytes | None]) -> BinaryColumn:
    sizes = [0 if value is None else len(value) for value in values]
    return BinaryColumn(_validity(values), _ends(sizes), b"".join(filter(None, values)))


def _ends(sizes: Sequence[int]) -> bytes:
    return array("i", accumulate(sizes, initial=0)).tobytes()


def _validity(values: Sequence[object | None]) -> bytes | None:
    """A bit for each row, the lowest of the first byte first; 0 means null."""
    if None not in values:
        return None
    bits = bytearray((len(values) + 7) // 8)
    for index, value in enumerate(values):
        if value is not None:
            bits[index >> 3] |= 1 << (index & 7)
    return bytes(bits)


class Totals(NamedTuple):
    """What the compiled scan has measured, in the order in which it tells."""

    rows: int
    null_timestamps: int
    key_nulls: int
    key_bytes: int
    value_nulls: int
    value_bytes: int
    headers: int
    header_key_bytes: int
    header_value_nulls: int
    header_value_bytes: int


class NativeScan:
    """Called like ``scan_payloads``, and gives the same.

    Records are read where they lie. The memory of every column belongs to Python: a first walk measures it, then it is
    allocated, and a second walk fills it.
    """

    def __init__(self, module: NativeModule, allocate: Allocate = bytearray) -> None:
        self._scan = module.scan_records
        self._allocate = allocate

    def __call__(self, payloads: Sequence[Payload], bounds: RowBounds) -> RecordColumns:
        found = self._scan(payloads, bounds, self._memory)
        if isinstance(found, int):
            raise _damage(payloads[found], bounds)
        return found

    def _memory(self, *numbers: int) -> RecordColumns:
        totals = Totals(*numbers)
        _check_sizes(totals)
        return _memory_for(totals, self._allocate)


def _damage(payload: Payload, bounds: RowBounds) -> CorruptBatch:
    """The error, as the Python scan reports it."""
    try:
        scan_payloads([payload], bounds)
    except CorruptBatch as error:
        return error
    raise AssertionError(f"only one of two scans finds the batch at offset {payload.header.base_offset} damaged")


def _check_sizes(totals: Totals) -> None:
    largest = max(totals.key_bytes, totals.value_bytes, totals.header_key_bytes, totals.header_value_bytes)
    if max(largest, totals.headers) > _MAX_COLUMN_BYTES:
        raise CorruptBatch(f"a column of {largest} bytes is more than one Arrow batch can hold")


def _memory_for(totals: Totals, allocate: Allocate) -> RecordColumns:
    rows, headers = totals.rows, totals.headers
    return RecordColumns(
        row_count=rows,
        offsets=bytearray(rows * _INT64_BYTES),
        timestamps=bytearray(rows * _INT64_BYTES),
        timestamp_validity=_bits(rows, totals.null_timestamps),
        timestamp_types=bytearray(rows * _INT32_BYTES),
        timestamp_type_validity=None,  # Only message format 0 has none.
        keys=_binary(rows, totals.key_nulls, allocate(totals.key_bytes)),
        values=_binary(rows, totals.value_nulls, allocate(totals.value_bytes)),
        header_ends=_zero_ends(rows),
        header_count=headers,
        header_keys=_binary(headers, 0, allocate(totals.header_key_bytes)),
        header_values=_binary(headers, totals.header_value_nulls, allocate(totals.header_value_bytes)),
    )


def _binary(rows: int, nulls: int, data: Buffer) -> BinaryColumn:
    return BinaryColumn(_bits(rows, nulls), _zero_ends(rows), data)


def _bits(rows: int, nulls: int) -> bytearray | None:
    """Zeros: only those of values that are not null are set."""
    return bytearray((rows + 7) // 8) if nulls else None


def _zero_ends(rows: int) -> bytearray:
    """Zeros: the first one is never written."""
    return bytearray((rows + 1) * _INT32_BYTES)


assert array("i").itemsize == 4, f"{sys.platform} has no 32-bit int"
