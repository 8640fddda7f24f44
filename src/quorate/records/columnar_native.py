"""The scan of ``columnar`` with its walk over the records in compiled code (``columnar_scan.c``).

The library is loaded elsewhere (``backup.spark.data_source.row_reader``). Records are read where they lie. The memory
of every column belongs to Python: it is measured by a first walk, allocated, and filled by a second one.
"""

import ctypes
import struct
from collections.abc import Callable, Sequence
from typing import Final

from quorate.kernel.ports import Buffer
from quorate.records.columnar import BinaryColumn, Payload, RecordColumns, RowBounds, scan_payloads
from quorate.records.errors import CorruptBatch

_BATCH: Final = struct.Struct("@P7q")
_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_MAX_COLUMN_BYTES: Final = 2**31 - 1

#: Allocates writable memory of a size, with any content.
Allocate = Callable[[int], Buffer]


class _Bounds(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_int64) for name in RowBounds._fields)


class _Totals(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in (
            "rows",
            "null_timestamps",
            "key_nulls",
            "key_bytes",
            "value_nulls",
            "value_bytes",
            "headers",
            "header_key_bytes",
            "header_value_nulls",
            "header_value_bytes",
        )
    )


class _BinaryColumn(ctypes.Structure):
    _fields_ = (("validity", ctypes.c_void_p), ("ends", ctypes.c_void_p), ("data", ctypes.c_void_p))


class _Columns(ctypes.Structure):
    _fields_ = (
        ("offsets", ctypes.c_void_p),
        ("timestamps", ctypes.c_void_p),
        ("timestamp_validity", ctypes.c_void_p),
        ("timestamp_types", ctypes.c_void_p),
        ("keys", _BinaryColumn),
        ("values", _BinaryColumn),
        ("header_ends", ctypes.c_void_p),
        ("header_keys", _BinaryColumn),
        ("header_values", _BinaryColumn),
    )


class NativeScan:
    """Called like ``columnar.scan_payloads``, and gives the same."""

    def __init__(self, library: ctypes.CDLL, allocate: Allocate = bytearray) -> None:
        self._allocate = allocate
        batches = (ctypes.c_char_p, ctypes.c_int64, ctypes.POINTER(_Bounds))
        self._measure = library.quorate_measure
        self._measure.argtypes = (*batches, ctypes.POINTER(_Totals))
        self._measure.restype = ctypes.c_int64
        self._fill = library.quorate_fill
        self._fill.argtypes = (*batches, ctypes.POINTER(_Totals), ctypes.POINTER(_Columns))
        self._fill.restype = ctypes.c_int64

    def __call__(self, payloads: Sequence[Payload], bounds: RowBounds) -> RecordColumns:
        pinned = [_writable_or_bytes(payload.data) for payload in payloads]
        arguments = (_describe(payloads, pinned), len(payloads), _Bounds(*bounds))
        totals = _Totals()
        damaged = self._measure(*arguments, totals)
        if damaged >= 0:
            raise _damage(payloads[damaged], bounds)
        _check_sizes(totals)
        memory = _memory_for(totals, self._allocate)
        damaged = self._fill(*arguments, totals, _addresses(memory))
        assert damaged < 0, "two walks over the same bytes found different records"
        return memory


def _writable_or_bytes(data: Buffer) -> Buffer:
    """The same memory where its address can be had, else a copy."""
    return bytes(data) if isinstance(data, memoryview) and data.readonly else data


def _describe(payloads: Sequence[Payload], pinned: Sequence[Buffer]) -> bytes:
    """The addresses are valid for as long as the ``pinned`` buffers are kept."""
    described = bytearray(_BATCH.size * len(payloads))
    for number, ((header, _), data) in enumerate(zip(payloads, pinned, strict=True)):
        _BATCH.pack_into(
            described,
            number * _BATCH.size,
            _address(data),
            len(data),
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp,
            header.last_offset_delta,
            header.record_count,
            header.timestamp_type,
        )
    return bytes(described)


def _damage(payload: Payload, bounds: RowBounds) -> CorruptBatch:
    """The error, as the Python scan reports it."""
    try:
        scan_payloads([payload], bounds)
    except CorruptBatch as error:
        return error
    raise AssertionError(f"only one of two scans finds the batch at offset {payload.header.base_offset} damaged")


def _check_sizes(totals: _Totals) -> None:
    largest = max(totals.key_bytes, totals.value_bytes, totals.header_key_bytes, totals.header_value_bytes)
    if max(largest, totals.headers) > _MAX_COLUMN_BYTES:
        raise CorruptBatch(f"a column of {largest} bytes is more than one Arrow batch can hold")


def _memory_for(totals: _Totals, allocate: Allocate) -> RecordColumns:
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
        header_ends=_ends(rows),
        header_count=headers,
        header_keys=_binary(headers, 0, allocate(totals.header_key_bytes)),
        header_values=_binary(headers, totals.header_value_nulls, allocate(totals.header_value_bytes)),
    )


def _binary(rows: int, nulls: int, data: Buffer) -> BinaryColumn:
    return BinaryColumn(_bits(rows, nulls), _ends(rows), data)


def _bits(rows: int, nulls: int) -> bytearray | None:
    """Zeros: only those of values that are not null are set."""
    return bytearray((rows + 7) // 8) if nulls else None


def _ends(rows: int) -> bytearray:
    """Zeros: the first one is never written."""
    return bytearray((rows + 1) * _INT32_BYTES)


def _addresses(memory: RecordColumns) -> _Columns:
    return _Columns(
        offsets=_address(memory.offsets),
        timestamps=_address(memory.timestamps),
        timestamp_validity=_address(memory.timestamp_validity),
        timestamp_types=_address(memory.timestamp_types),
        keys=_column(memory.keys),
        values=_column(memory.values),
        header_ends=_address(memory.header_ends),
        header_keys=_column(memory.header_keys),
        header_values=_column(memory.header_values),
    )


def _column(column: BinaryColumn) -> _BinaryColumn:
    return _BinaryColumn(_address(column.validity), _address(column.ends), _address(column.data))


def _address(memory: Buffer | None) -> int:
    """0 for no bytes: nothing is read or written there."""
    if not memory:
        return 0
    if isinstance(memory, bytes):
        return ctypes.c_void_p.from_buffer(ctypes.c_char_p(memory)).value or 0
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))
