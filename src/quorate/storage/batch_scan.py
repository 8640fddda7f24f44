"""Walking over the batches of a log file, header by header, without reading more than that takes."""

from collections.abc import Iterator

from quorate.kernel.ports import DiskFile
from quorate.records.batch import HEADER_SIZE_BYTES, BatchHeader, check_crc, read_header
from quorate.records.errors import CorruptBatch

_HEADER_CHUNK_BYTES = 8 << 10
_CONTENT_CHUNK_BYTES = 1 << 20


def scan_headers(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of each batch that starts in ``[position, end)``, a range that is known to be sound."""
    chunk, chunk_start = b"", position
    while position < end:
        if position + HEADER_SIZE_BYTES > chunk_start + len(chunk):
            chunk, chunk_start = file.read(position, min(_HEADER_CHUNK_BYTES, end - position)), position
        header = read_header(chunk, position - chunk_start)
        yield position, header
        position += header.size_bytes


def scan_batches(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Each batch with its bytes; ``CorruptBatch`` at the first that is torn or has a wrong CRC."""
    chunk, chunk_start = memoryview(b""), position
    while position < end:
        if position + HEADER_SIZE_BYTES > chunk_start + len(chunk):
            chunk, chunk_start = _chunk(file, position, min(_CONTENT_CHUNK_BYTES, end - position)), position
        header = read_header(chunk, position - chunk_start)
        batch_end = position + header.size_bytes
        if batch_end > end:
            raise CorruptBatch(f"batch at position {position} is cut off by the end of the file")
        if batch_end > chunk_start + len(chunk):
            length = min(max(header.size_bytes, _CONTENT_CHUNK_BYTES), end - position)
            chunk, chunk_start = _chunk(file, position, length), position
        check_crc(chunk, position - chunk_start, header)
        yield position, header, chunk[position - chunk_start : batch_end - chunk_start]
        position = batch_end


def _chunk(file: DiskFile, position: int, length: int) -> memoryview:
    return memoryview(file.read(position, length))
