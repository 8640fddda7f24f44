"""The records of many batches as columns, in the memory layout of Arrow, without an object for each record. Pure.

Two scans give the same columns, byte for byte: the one here, and ``columnar_native``, which leaves the walk over the
records to compiled code. Both refuse exactly the bytes that ``record`` refuses.
"""

import sys
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from quorate.kernel.disk import Buffer
from quorate.kernel.ids import Offset
from quorate.records.attributes import Compression, TimestampType
from quorate.records.batch import HEADER_SIZE_BYTES, BatchHeader
from quorate.records.errors import CorruptBatch
from quorate.records.record import NO_TIMESTAMP, Record, read_payload, records_in_payload

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1
_MICROSECONDS_PER_MILLISECOND: Final = 1000
_NO_TIMESTAMP_TYPE: Final = 0  # Below the null of a record that has no time.


class RowBounds(NamedTuple):
    """Which records are wanted. The end of the offsets is not among them; both ends of the times are."""

    start_offset: int = INT64_MIN
    end_offset: int = INT64_MAX
    start_ms: int = INT64_MIN
    end_ms: int = INT64_MAX

    def include(self, record: Record) -> bool:
        return self.start_offset <= record.offset < self.end_offset and self.start_ms <= record.timestamp <= self.end_ms


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
    """Gathers columns record by record."""

    def __init__(self) -> None:
        self._offsets = array("q")
        self._timestamps = array("q")
        self._without_timestamp: list[int] = []
        self._timestamp_types = array("i")
        self._without_type: list[int] = []
        self._keys = _BinaryBuilder()
        self._values = _BinaryBuilder()
        self._header_ends = array("i", (0,))
        self._header_keys = _BinaryBuilder()
        self._header_values = _BinaryBuilder()

    def add(self, records: Iterable[Record], timestamp_type: TimestampType | None, bounds: RowBounds) -> None:
        """``timestamp_type`` is None for message format 0, which has no times."""
        for record in records:
            _check_offset(record.offset)
            if bounds.include(record):
                self._add_row(record, timestamp_type)

    def finish(self) -> RecordColumns:
        row_count = len(self._offsets)
        return RecordColumns(
            row_count=row_count,
            offsets=self._offsets.tobytes(),
            timestamps=self._timestamps.tobytes(),
            timestamp_validity=_validity(row_count, self._without_timestamp),
            timestamp_types=self._timestamp_types.tobytes(),
            timestamp_type_validity=_validity(row_count, self._without_type),
            keys=self._keys.finish(),
            values=self._values.finish(),
            header_ends=self._header_ends.tobytes(),
            header_count=self._header_ends[-1],
            header_keys=self._header_keys.finish(),
            header_values=self._header_values.finish(),
        )

    def _add_row(self, record: Record, timestamp_type: TimestampType | None) -> None:
        microseconds = record.timestamp * _MICROSECONDS_PER_MILLISECOND
        if record.timestamp == NO_TIMESTAMP or not INT64_MIN <= microseconds <= INT64_MAX:
            self._without_timestamp.append(len(self._offsets))
            microseconds = 0
        if timestamp_type is None:
            self._without_type.append(len(self._offsets))
        self._offsets.append(record.offset)
        self._timestamps.append(microseconds)
        self._timestamp_types.append(_NO_TIMESTAMP_TYPE if timestamp_type is None else timestamp_type)
        self._keys.add(record.key)
        self._values.add(record.value)
        for key, value in record.headers:
            self._header_keys.add(key.encode("utf-8", "surrogateescape"))
            self._header_values.add(value)
        self._header_ends.append(self._header_ends[-1] + len(record.headers))


class _BinaryBuilder:
    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._ends = array("i", (0,))
        self._nulls: list[int] = []

    def add(self, value: bytes | None) -> None:
        if value is None:
            self._nulls.append(len(self._ends) - 1)
            self._ends.append(self._ends[-1])
        else:
            self._parts.append(value)
            self._ends.append(self._ends[-1] + len(value))

    def finish(self) -> BinaryColumn:
        return BinaryColumn(_validity(len(self._ends) - 1, self._nulls), self._ends.tobytes(), b"".join(self._parts))


def _validity(count: int, nulls: Sequence[int]) -> bytes | None:
    """A bit for each row, the lowest of the first byte first; 0 means null."""
    if not nulls:
        return None
    bits = (1 << count) - 1
    for index in nulls:
        bits ^= 1 << index
    return bits.to_bytes((count + 7) // 8, "little")


def _check_offset(offset: Offset) -> None:
    if offset > INT64_MAX:
        raise CorruptBatch(f"offset {offset} has more than 64 bits")


assert array("i").itemsize == 4, f"{sys.platform} has no 32-bit int"
