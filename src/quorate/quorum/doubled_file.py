"""Small files that nobody else has: each holds its content twice, so that damage to one copy is found and mended.

A copy begins with the length and the CRC-32C of its content, in a block of its own. What an earlier version wrote, the
content once and its CRC in a last line, is read as well.
"""

import re

import msgspec

from quorate.kernel.checksum import crc32c
from quorate.kernel.ports import Disk, DiskFile

_BLOCK_BYTES = 4096
_HEADER = re.compile(rb"(\d{1,9}) ([0-9a-f]{8})\n")
_CRC_LINE = b"\n%08x\n"
_CRC_LINE_BYTES = len(_CRC_LINE % 0)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the quorum that is not as it was written."""

    path: str
    problem: str
    #: Made good from what else this node has. Otherwise the rest of the cluster has to give it back.
    is_repaired: bool
    #: A power cut may have left the file like this.
    may_be_torn: bool = False


class Doubled(msgspec.Struct, frozen=True, kw_only=True):
    #: None where no copy can be read.
    content: bytes | None
    #: A byte somewhere is not as it was written.
    is_damaged: bool


def encode(content: bytes) -> bytes:
    copy = b"%d %08x\n%b" % (len(content), crc32c(content), content)
    blocks = -(-len(copy) // _BLOCK_BYTES)
    return copy.ljust(blocks * _BLOCK_BYTES, b"\n") * 2


def decode(stored: bytes) -> Doubled:
    for position in range(0, len(stored), _BLOCK_BYTES):
        content = _copy_at(stored, position)
        if content is not None:
            return Doubled(content=content, is_damaged=stored != encode(content))
    content = with_crc_line_checked(stored)
    return Doubled(content=content, is_damaged=content is None)


def read(disk: Disk, path: str) -> Doubled | None:
    """None where there is no such file."""
    stored = read_all(disk, path)
    return None if stored is None else decode(stored)


def read_all(disk: Disk, path: str) -> bytes | None:
    """None where there is no such file; blocks that the disk cannot read any more are zeros."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        size = file.size()
        try:
            return file.read(0, size)
        except OSError:
            return b"".join(_read_block(file, start, size) for start in range(0, size, _BLOCK_BYTES))
    finally:
        file.close()


def _read_block(file: DiskFile, start: int, size: int) -> bytes:
    length = min(_BLOCK_BYTES, size - start)
    try:
        return file.read(start, length).ljust(length, b"\0")
    except OSError:
        return bytes(length)


def with_crc_line(content: bytes) -> bytes:
    return content + _CRC_LINE % crc32c(content)


def with_crc_line_checked(stored: bytes) -> bytes | None:
    """The content; None where it does not have the CRC that stands in the last line."""
    content = stored[:-_CRC_LINE_BYTES]
    return content if stored == with_crc_line(content) else None


def _copy_at(stored: bytes, position: int) -> bytes | None:
    header = _HEADER.match(stored, position)
    if header is None:
        return None
    content = stored[header.end() : header.end() + int(header[1])]
    is_sound = len(content) == int(header[1]) and header[2] == b"%08x" % crc32c(content)
    return content if is_sound else None
