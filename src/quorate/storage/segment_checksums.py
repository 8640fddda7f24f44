"""Checksums of a segment's files, kept beside it in a small file of their own.

The CRC of a batch covers neither its base offset nor its leader epoch, and an index has none at all. So the
files are summed up once they no longer change: the log in chunks, so that damage can be located, and each index as a
whole. A checksum covers the first bytes of a file, which may have grown since. The checksum file is written when a
segment is closed, compacted or scrubbed; where it is missing, a segment is checked by its batches alone.
"""

from collections.abc import Iterator

import msgspec

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import Offset
from quorate.kernel.ports import Disk, DiskFile
from quorate.storage.file_names import CHECKSUMS, LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX, path_of

CHUNK_BYTES = 64 << 10
_READ_BYTES = 16 * CHUNK_BYTES
_CRC_BYTES = 4
_VERSION = 1


class Checksum(msgspec.Struct, frozen=True, array_like=True):
    size_bytes: int
    crc: int


class SegmentChecksums(msgspec.Struct, frozen=True, array_like=True):
    version: int
    #: How many bytes of the log file are summed up, and the offset after them.
    log_size_bytes: int
    end_offset: int
    log_chunks: list[int]
    offset_index: Checksum
    time_index: Checksum
    #: None where no transaction was aborted: then there is no file.
    transaction_index: Checksum | None


_decoder: msgspec.msgpack.Decoder[SegmentChecksums] = msgspec.msgpack.Decoder(SegmentChecksums)


class SummedLog(msgspec.Struct, frozen=True, kw_only=True):
    """A segment whose indexes are stored and whose log no longer changes below ``size_bytes``."""

    directory: str
    base_offset: Offset
    size_bytes: int
    end_offset: Offset
    #: The suffix of its files while they are being made.
    suffix: str = ""
    #: The same for its index of aborted transactions, which may be in place already.
    transactions_suffix: str = ""

    def path(self, kind: str) -> str:
        return path_of(self.directory, self.base_offset, kind + self.suffix)


def write_checksums(disk: Disk, log: SummedLog, known: SegmentChecksums | None = None) -> None:
    """Sum up the files of a segment. ``known`` checksums of the log are continued; that part is not read again."""
    checksums = SegmentChecksums(
        version=_VERSION,
        log_size_bytes=log.size_bytes,
        end_offset=log.end_offset,
        log_chunks=_sum_up_log(disk, log, known),
        offset_index=_of_file(disk, log.path(OFFSET_INDEX)) or Checksum(0, 0),
        time_index=_of_file(disk, log.path(TIME_INDEX)) or Checksum(0, 0),
        transaction_index=_of_file(
            disk, path_of(log.directory, log.base_offset, TRANSACTION_INDEX + log.transactions_suffix)
        ),
    )
    disk.replace(log.path(CHECKSUMS), encode(checksums))


def _sum_up_log(disk: Disk, log: SummedLog, known: SegmentChecksums | None) -> list[int]:
    file = disk.open(log.path(LOG))
    try:
        if known is None or known.log_size_bytes > log.size_bytes:
            return log_chunks(file, log.size_bytes)
        whole, rest_bytes = divmod(known.log_size_bytes, CHUNK_BYTES)
        chunks = known.log_chunks[:whole]
        start = whole * CHUNK_BYTES
        if rest_bytes:
            end = min(start + CHUNK_BYTES, log.size_bytes)
            added = file.read(known.log_size_bytes, end - known.log_size_bytes)
            chunks.append(crc32c(added, known.log_chunks[whole]))
            start = end
        return chunks + log_chunks(file, log.size_bytes, start)
    finally:
        file.close()


def read_checksums(disk: Disk, directory: str, base_offset: Offset) -> SegmentChecksums | None:
    """None where there is no such file, or it is damaged itself."""
    content = _content(disk, path_of(directory, base_offset, CHECKSUMS))
    return None if content is None else decode(content)


def encode(checksums: SegmentChecksums) -> bytes:
    body = msgspec.msgpack.encode(checksums)
    return crc32c(body).to_bytes(_CRC_BYTES) + body


def decode(content: bytes) -> SegmentChecksums | None:
    body = content[_CRC_BYTES:]
    if crc32c(body).to_bytes(_CRC_BYTES) != content[:_CRC_BYTES]:
        return None
    try:
        checksums = _decoder.decode(body)
    except msgspec.DecodeError:
        return None
    return checksums if checksums.version == _VERSION else None


def log_chunks(file: DiskFile, size_bytes: int, start: int = 0) -> list[int]:
    """The CRC of each chunk from ``start``, where one begins, up to ``size_bytes``; the last may be shorter."""
    return [crc for sums in _chunks(file, size_bytes, start) for crc in sums]


def _chunks(file: DiskFile, size_bytes: int, start: int = 0) -> Iterator[list[int]]:
    for position in range(start, size_bytes, _READ_BYTES):
        content = memoryview(file.read(position, min(_READ_BYTES, size_bytes - position)))
        yield [crc32c(content[at : at + CHUNK_BYTES]) for at in range(0, len(content), CHUNK_BYTES)]


def damaged_chunks(checksums: SegmentChecksums, file: DiskFile, found: list[tuple[int, int]]) -> Iterator[int]:
    """Find the ranges of the log whose checksums do not match; yields from time to time how many bytes were read."""
    index = 0
    for sums in _chunks(file, checksums.log_size_bytes):
        for crc in sums:
            if crc != checksums.log_chunks[index]:
                start = index * CHUNK_BYTES
                found.append((start, min(start + CHUNK_BYTES, checksums.log_size_bytes)))
            index += 1
        yield len(sums) * CHUNK_BYTES


def indexes_match(checksums: SegmentChecksums, disk: Disk, directory: str, base_offset: Offset) -> bool:
    return _matches(checksums.offset_index, disk, path_of(directory, base_offset, OFFSET_INDEX)) and _matches(
        checksums.time_index, disk, path_of(directory, base_offset, TIME_INDEX)
    )


def stored_match(
    disk: Disk,
    directory: str,
    base_offset: Offset,
    of_offsets: tuple[int, int] | None,
    of_times: tuple[int, int] | None,
) -> bool:
    """The same for indexes that grow: size and CRC of what was stored of each, where that is known."""
    expected = ((OFFSET_INDEX, of_offsets), (TIME_INDEX, of_times))
    return all(
        _matches(Checksum(*stored), disk, path_of(directory, base_offset, kind))
        for kind, stored in expected
        if stored is not None and stored[0]
    )


def transactions_match(checksums: SegmentChecksums, disk: Disk, directory: str, base_offset: Offset) -> bool:
    return _matches(checksums.transaction_index, disk, path_of(directory, base_offset, TRANSACTION_INDEX))


def has_transactions(disk: Disk, directory: str, base_offset: Offset) -> bool:
    return bool(_content(disk, path_of(directory, base_offset, TRANSACTION_INDEX)))


def _matches(expected: Checksum | None, disk: Disk, path: str) -> bool:
    if expected is None:
        return True
    content = _content(disk, path)
    return (
        content is not None
        and len(content) >= expected.size_bytes
        and crc32c(content[: expected.size_bytes]) == expected.crc
    )


def _of_file(disk: Disk, path: str) -> Checksum | None:
    content = _content(disk, path)
    return None if content is None else Checksum(len(content), crc32c(content))


def _content(disk: Disk, path: str) -> bytes | None:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return file.read(0, file.size())
    finally:
        file.close()
