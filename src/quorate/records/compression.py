"""Kafka's compression codecs, for the records of a batch.

Decompression is capped. Bytes that would expand beyond ``limit_bytes`` are refused before more than that is allocated,
so a small batch cannot take the node's memory.
"""

import struct
import zlib
from collections.abc import Callable

from cramjam import DecompressionError, lz4, snappy, zstd

from quorate.kernel.ports import Buffer
from quorate.records.batch import Compression
from quorate.records.errors import CorruptBatch, ExpandsTooFar

DEFAULT_LIMIT_BYTES = 256 * 1024 * 1024

_GZIP_WINDOW_BITS = 31  # 15 bits of window and a gzip header instead of zlib's.
_ZSTD_LEVEL = 3
#: A gzip member is given this much of the data, and then twice as much each time. The data that it does not use is
#: copied: without this, thousands of tiny members would copy all that follows thousands of times.
_GZIP_FIRST_BYTES = 1024

# Java clients wrap snappy blocks as the xerial library does; librdkafka writes one block without any frame.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE_BYTES = 32 * 1024
_BLOCK_LENGTH = struct.Struct(">I")
_SNAPPY_MAX_RATIO = 64  # No snappy element of one byte or more stands for more than 64 bytes.

# Most batches shrink by less than this, so that one attempt is enough.
_FIRST_GUESS_RATIO = 8
_FIRST_GUESS_MIN_BYTES = 4096
_GROWTH = 4
_OUTPUT_FULL = "failed to write whole buffer"

# Decompressing into fresh memory takes several times as long as into memory that was used before.
_SCRATCH_BYTES = 1024 * 1024
#: Such memory that is free: at most as many pieces as threads have used at once.
_spare: list[bytearray] = []


def compress(compression: Compression, data: Buffer) -> bytes:
    match compression:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, wbits=_GZIP_WINDOW_BITS)
        case Compression.SNAPPY:
            return _compress_xerial(data)
        case Compression.LZ4:
            return _compress_lz4(data)
        case Compression.ZSTD:
            return bytes(zstd.compress(data, level=_ZSTD_LEVEL))


def decompress(compression: Compression, data: Buffer, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> bytes:
    """The bytes that were compressed; ``CorruptBatch`` where ``data`` is damaged or expands beyond the limit."""
    try:
        match compression:
            case Compression.NONE:
                return bytes(data)
            case Compression.GZIP:
                return _decompress_gzip(data, limit_bytes)
            case Compression.SNAPPY:
                return _decompress_snappy(data, limit_bytes)
            case Compression.LZ4:
                return _decompress_growing(lz4.decompress_into, data, limit_bytes)
            case Compression.ZSTD:
                return _decompress_growing(zstd.decompress_into, data, limit_bytes)
    except (DecompressionError, zlib.error) as error:
        raise CorruptBatch(f"{compression.name.lower()} data is damaged: {error}") from None


def _compress_lz4(data: Buffer) -> bytes:
    # Java consumers refuse frames whose blocks depend on each other, which is what cramjam writes unless told.
    compressor = lz4.Compressor(level=1, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: Buffer) -> bytes:
    parts = [_XERIAL_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE_BYTES):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE_BYTES]))
        parts.append(_BLOCK_LENGTH.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    """Inflate each member in turn: a gzip file may have several."""
    parts: list[bytes] = []
    remaining_bytes = limit_bytes
    view = memoryview(data)
    position = 0
    while position < len(view) or not parts:
        inflater = zlib.decompressobj(_GZIP_WINDOW_BITS)
        size_bytes = _GZIP_FIRST_BYTES
        while not inflater.eof:
            piece = view[position : position + size_bytes]
            if not piece:
                raise CorruptBatch("gzip data ends early")
            part = inflater.decompress(piece, remaining_bytes + 1)
            if len(part) > remaining_bytes:
                raise _too_large(limit_bytes)
            parts.append(part)
            remaining_bytes -= len(part)
            position += len(piece) - len(inflater.unused_data)
            size_bytes *= 2
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return _decompress_snappy_block(view, limit_bytes, limit_bytes)
    parts: list[bytes] = []
    remaining_bytes = limit_bytes
    position = len(_XERIAL_HEADER)
    while position < len(view):
        if position + _BLOCK_LENGTH.size > len(view):
            raise CorruptBatch("snappy data ends early")
        (length,) = _BLOCK_LENGTH.unpack_from(view, position)
        position += _BLOCK_LENGTH.size
        if length > len(view) - position:
            raise CorruptBatch("snappy data ends early")
        parts.append(_decompress_snappy_block(view[position : position + length], remaining_bytes, limit_bytes))
        remaining_bytes -= len(parts[-1])
        position += length
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, remaining_bytes: int, limit_bytes: int) -> bytes:
    """A block names its expanded size first, which is believed only as far as its length can bear it out."""
    size_bytes = snappy.decompress_raw_len(block)
    if size_bytes > remaining_bytes:
        raise _too_large(limit_bytes)
    if size_bytes > len(block) * _SNAPPY_MAX_RATIO:
        raise CorruptBatch(f"snappy block of {len(block)} bytes claims {size_bytes}")
    output = bytearray(size_bytes)
    snappy.decompress_raw_into(block, output)
    return bytes(output)


def _decompress_growing(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit_bytes: int) -> bytes:
    """Decompress a frame that need not tell its size: try with more room each time, up to the limit."""
    too_small_bytes = 0
    if len(data) * 2 <= _SCRATCH_BYTES <= limit_bytes:
        output = _decompress_within_scratch(decompress_into, data)
        if output is not None:
            return output
        too_small_bytes = _SCRATCH_BYTES
    first_guess_bytes = max(len(data) * _FIRST_GUESS_RATIO, _FIRST_GUESS_MIN_BYTES, too_small_bytes * _GROWTH)
    capacity_bytes = min(first_guess_bytes, limit_bytes)
    while (output := _decompress_within(decompress_into, data, bytearray(capacity_bytes))) is None:
        if capacity_bytes == limit_bytes:
            raise _too_large(limit_bytes)
        capacity_bytes = min(capacity_bytes * _GROWTH, limit_bytes)
    return output


def _decompress_within_scratch(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer) -> bytes | None:
    try:
        scratch = _spare.pop()
    except IndexError:
        scratch = bytearray(_SCRATCH_BYTES)
    try:
        return _decompress_within(decompress_into, data, scratch)
    finally:
        _spare.append(scratch)


def _decompress_within(
    decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, output: bytearray
) -> bytes | None:
    """None where it needs more than ``output``."""
    try:
        size_bytes = decompress_into(data, output)
    except DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            return None
        raise
    return bytes(memoryview(output)[:size_bytes])


def _too_large(limit_bytes: int) -> ExpandsTooFar:
    return ExpandsTooFar(f"compressed data expands beyond {limit_bytes} bytes")
