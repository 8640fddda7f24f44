"""Batches of one partition in, Arrow batches out: decompressed, scanned and cut to the wanted rows. Does I/O.

Rows are gathered until an Arrow batch is worth sending, and never more than a few megabytes of them are held.

Records are turned into columns by the compiled scan where a C compiler is at hand, else by Python's. The library is
compiled when it is first asked for, into the user's cache, and named by all that it depends on: its source, the
compiler and the machine. So an installation never needs a compiler, and never fails for want of one. Who cannot compile
reads more slowly and gets the same records.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from quorate.backup.spark.data_source.columns import ArrowRows
from quorate.backup.spark.session.class_archive import cache_folder
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
#: "0" in the environment does without compiled code.
SWITCH = "QUORATE_NATIVE_SCAN"
_SOURCE = "columnar_scan.c"
_FLAGS = ("-O2", "-shared", "-fPIC", "-std=gnu99")
_COMPILE_TIMEOUT_S = 60


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
    return load_native_scan(os.environ) or scan_payloads


def load_native_scan(environment: Mapping[str, str]) -> NativeScan | None:
    """None where it is switched off, or cannot be compiled or loaded."""
    compiler = _find_compiler(environment)
    if environment.get(SWITCH) == "0" or compiler is None:
        return None
    try:
        return NativeScan(_load(compiler, cache_folder(environment)), _warm_memory)
    except (OSError, AttributeError, subprocess.SubprocessError):
        return None


def _warm_memory(size_bytes: int) -> memoryview:
    """Out of Arrow's pool: used before, and not filled with zeros, which takes as long as filling it with records."""
    import pyarrow

    return memoryview(pyarrow.allocate_buffer(size_bytes))


def _find_compiler(environment: Mapping[str, str]) -> str | None:
    wanted = environment.get("CC") or "cc"
    return shutil.which(wanted, path=environment.get("PATH")) or shutil.which("gcc", path=environment.get("PATH"))


def _load(compiler: str, folder: Path) -> ctypes.CDLL:
    source = files("quorate.records").joinpath(_SOURCE).read_bytes()
    library = folder / f"columnar-scan-{_digest(source, compiler)}.so"
    if library.is_file() and library.stat().st_uid == os.getuid():
        return ctypes.CDLL(str(library))
    with tempfile.TemporaryDirectory(prefix="quorate-scan-") as workplace:
        draft = _compile(compiler, source, Path(workplace))
        # Loaded from where only this process can have written; kept for the next one if the cache allows it.
        loaded = ctypes.CDLL(str(draft))
        _keep(draft, library)
        return loaded


def _compile(compiler: str, source: bytes, workplace: Path) -> Path:
    source_path, draft = workplace / _SOURCE, workplace / "columnar_scan.so"
    source_path.write_bytes(source)
    subprocess.run(
        [compiler, *_FLAGS, "-o", str(draft), str(source_path)],
        check=True,
        capture_output=True,
        timeout=_COMPILE_TIMEOUT_S,
    )
    return draft


def _keep(draft: Path, library: Path) -> None:
    """Put into the cache whole or not at all: the last one wins, and all are equal."""
    beside = library.with_suffix(f".{os.getpid()}.draft")
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(draft, beside)
        beside.replace(library)
    except OSError:
        beside.unlink(missing_ok=True)


def _digest(source: bytes, compiler: str) -> str:
    ingredients = (source, compiler.encode(), platform.machine().encode(), " ".join(_FLAGS).encode())
    return hashlib.sha256(b"\n".join(ingredients)).hexdigest()[:16]
