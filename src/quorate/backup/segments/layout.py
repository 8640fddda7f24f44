"""The bytes of a ``.qseg`` segment: preamble and header, frame heads, footer and trailer.

::

    segment  = preamble header frame* footer trailer
    preamble = "QSEG" version(u16) zero(u16) header_size(u32) crc(u32)
    header   = JSON: whose batches these are
    frame    = "QFRM" codec(u8) zero(3) stored_size(u32) payload_size(u32) batch_count(u32)
               base_offset(i64) last_offset(i64) crc(u32) batches, as they are or compressed
    footer   = JSON: counts, times, index, SHA-256 of all before
    trailer  = footer_size(u32) crc(u32) "GESQ"

A frame is a group of batches; those that their producer left uncompressed are compressed together. LZ4 blocks and zstd
frames carry no size of their own here, since the frame's head has it.

Integers are big-endian, CRCs are CRC32C. So every byte is under a CRC or is a constant, and a reader that starts in
the middle finds damage as well as one that checks the SHA-256 of the whole.
"""

import struct
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import msgspec
from cramjam import CompressionError, DecompressionError, lz4, zstd

from quorate.backup.objects.stored_documents import (
    BatchBytes,
    Count,
    DocumentFault,
    Generation,
    RecordTimestamp,
    Sha256,
    SizeBytes,
    StoredEpoch,
    StoredOffset,
    StoredPartition,
    decode_json,
)
from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import Offset, TopicId, TopicName
from quorate.kernel.ports import Buffer

_Decoded = TypeVar("_Decoded")

FORMAT_VERSION = 3

SEGMENT_MAGIC = b"QSEG"
FRAME_MAGIC = b"QFRM"
TRAILER_MAGIC = b"GESQ"

_PREAMBLE = struct.Struct(">4sHHII")
_PREAMBLE_FIELDS = struct.Struct(">HHI")
_FRAME_HEAD = struct.Struct(">4sB3xIIIqqI")
_FRAME_FIELDS = struct.Struct(">B3xIIIqq")
_TRAILER = struct.Struct(">II4s")
_UINT32 = struct.Struct(">I")

# Limits of the format. A writer keeps to them, so a reader allocates nothing for what claims to be larger.
GATHERED_FRAME_BYTES = 1024 * 1024  # Of batches that share a frame. A larger frame holds a single batch.
MAX_COMPRESSED_FRAME_BYTES = 16 * 1024 * 1024  # Of the batches of a compressed frame; a larger batch is not compressed.
MAX_FRAME_BYTES = 256 * 1024 * 1024  # So this is the largest batch. By default no broker takes one of 100 MiB.
MAX_HEADER_BYTES = 64 * 1024
MAX_FOOTER_BYTES = 16 * 1024 * 1024

# Speed comes before the last per cent: a backup must keep up with the brokers.
_ZSTD_LEVEL = 1

PREAMBLE_SIZE_BYTES = _PREAMBLE.size
FRAME_HEAD_SIZE_BYTES = _FRAME_HEAD.size
TRAILER_SIZE_BYTES = _TRAILER.size


class LayoutFault(ValueError):
    """The bytes are not what the layout says; the reader adds where."""


class FrameCodec(IntEnum):
    """The number is stored in the frame's head; the name, in lower case, stands in config files."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class FrameNotDecodable(ValueError):
    pass


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    cluster_id: str
    topic: TopicName
    topic_id: TopicId
    partition: StoredPartition
    generation: Generation
    start_offset: StoredOffset


class EpochStart(msgspec.Struct, frozen=True, array_like=True):
    """The first offset that was seen with a leader epoch."""

    leader_epoch: StoredEpoch
    start_offset: StoredOffset


class IndexEntry(msgspec.Struct, frozen=True, array_like=True):
    """A frame's place. Before it stand only smaller offsets, and no timestamp above ``max_timestamp_before``."""

    base_offset: StoredOffset
    position: SizeBytes
    max_timestamp_before: RecordTimestamp


class SegmentFooter(msgspec.Struct, frozen=True, kw_only=True):
    """What the segment holds.

    It answers for the offsets from ``start_offset`` up to ``end_offset``: the log had no other batch whose base offset
    lies there. Its last batch may reach beyond the end, and its first may begin before the start.
    """

    start_offset: StoredOffset
    end_offset: StoredOffset
    first_offset: StoredOffset  # Of the batches themselves.
    last_offset: StoredOffset
    min_timestamp: RecordTimestamp | None  # None where no record has a timestamp.
    max_timestamp: RecordTimestamp | None
    batch_count: Count
    record_count: Count  # Markers of transactions, too.
    control_record_count: Count  # Those markers.
    batch_bytes: SizeBytes  # All batches as the broker sent them.
    largest_batch_bytes: BatchBytes
    is_plain: bool  # Whether all batches are, and no offset is missing between them.
    leader_epochs: list[EpochStart]
    index: list[IndexEntry]
    content_sha256: Sha256


class FrameHead(NamedTuple):
    codec: FrameCodec
    stored_size_bytes: int
    payload_size_bytes: int
    batch_count: int
    base_offset: Offset
    last_offset: Offset
    crc: int


def encode_header(header: SegmentHeader) -> bytes:
    body = msgspec.json.encode(header)
    crc = crc32c(body, crc32c(_PREAMBLE_FIELDS.pack(FORMAT_VERSION, 0, len(body))))
    return _PREAMBLE.pack(SEGMENT_MAGIC, FORMAT_VERSION, 0, len(body), crc) + body


def read_preamble(preamble: Buffer) -> tuple[int, int]:
    """Size and CRC of the header that follows."""
    magic, version, zero, size_bytes, crc = _unpack(_PREAMBLE, preamble)
    if magic != SEGMENT_MAGIC:
        raise LayoutFault("it does not begin as a segment does")
    if version != FORMAT_VERSION or zero != 0:
        raise LayoutFault(f"format version {version} is not known here, only {FORMAT_VERSION}")
    if size_bytes > MAX_HEADER_BYTES:
        raise LayoutFault(f"a header of {size_bytes} bytes is larger than any")
    return size_bytes, crc


def read_header_body(body: Buffer, crc: int) -> SegmentHeader:
    if crc32c(body, crc32c(_PREAMBLE_FIELDS.pack(FORMAT_VERSION, 0, len(body)))) != crc:
        raise LayoutFault("the header does not match its CRC")
    return _from_json(body, SegmentHeader, "header")


def encode_frame_head(
    codec: FrameCodec, stored: Buffer, *, payload_size_bytes: int, batch_count: int, base_offset: int, last_offset: int
) -> bytes:
    fields = (codec, len(stored), payload_size_bytes, batch_count, base_offset, last_offset)
    crc = crc32c(stored, crc32c(_FRAME_FIELDS.pack(*fields)))
    return _FRAME_HEAD.pack(FRAME_MAGIC, *fields, crc)


def read_frame_head(head: Buffer) -> FrameHead:
    magic, codec, stored_size, payload_size, batch_count, base, last, crc = _unpack(_FRAME_HEAD, head)
    if magic != FRAME_MAGIC:
        raise LayoutFault("no frame begins here")
    if any(bytes(head)[5:8]):  # The filling, which struct skips.
        raise LayoutFault("the frame's head does not match its CRC")
    try:
        known_codec = FrameCodec(codec)
    except ValueError:
        raise LayoutFault(f"frame codec {codec} is not known") from None
    _check_limits(known_codec, stored_size, payload_size, batch_count)
    return FrameHead(known_codec, stored_size, payload_size, batch_count, Offset(base), Offset(last), crc)


def _check_limits(codec: FrameCodec, stored_size: int, payload_size: int, batch_count: int) -> None:
    limit = MAX_FRAME_BYTES if codec is FrameCodec.NONE else MAX_COMPRESSED_FRAME_BYTES
    if max(stored_size, payload_size) > limit:
        raise LayoutFault(
            f"the frame claims {max(stored_size, payload_size)} bytes, and no frame of its kind has over {limit}"
        )
    if payload_size > GATHERED_FRAME_BYTES and batch_count != 1:
        raise LayoutFault(
            f"the frame claims {batch_count} batches of {payload_size} bytes; one so large holds a single batch"
        )
    if codec is FrameCodec.NONE and stored_size != payload_size:
        raise LayoutFault(f"its batches take {stored_size} bytes, not {payload_size}")


def check_frame(head: FrameHead, stored: Buffer) -> None:
    if crc32c(stored, crc32c(_FRAME_FIELDS.pack(*head[:6]))) != head.crc:
        raise LayoutFault("the frame does not match its CRC")


def encode_footer(footer: SegmentFooter) -> bytes:
    """Footer and trailer."""
    body = msgspec.json.encode(footer)
    size = _UINT32.pack(len(body))
    return body + _TRAILER.pack(len(body), crc32c(size, crc32c(body)), TRAILER_MAGIC)


def read_trailer(trailer: Buffer) -> tuple[int, int]:
    """Size and CRC of the footer that stands before."""
    size_bytes, crc, magic = _unpack(_TRAILER, trailer)
    if magic != TRAILER_MAGIC:
        raise LayoutFault("it does not end as a segment does, so its end is missing or damaged")
    if size_bytes > MAX_FOOTER_BYTES:
        raise LayoutFault(f"a footer of {size_bytes} bytes is larger than any")
    return size_bytes, crc


def read_footer_body(body: Buffer, crc: int) -> SegmentFooter:
    if crc32c(_UINT32.pack(len(body)), crc32c(body)) != crc:
        raise LayoutFault("the footer does not match its CRC")
    return _from_json(body, SegmentFooter, "footer")


def check_index(footer: SegmentFooter, frames_position: int, footer_position: int) -> None:
    """Whatever it leads to is read: each entry must lie behind the one before, and among the frames."""
    offset, position, timestamp = -1, frames_position - 1, -(2**63)
    for entry in footer.index:
        if not (offset < entry.base_offset and position < entry.position and timestamp <= entry.max_timestamp_before):
            raise LayoutFault("the index in its footer is not in order")
        offset, position, timestamp = entry.base_offset, entry.position, entry.max_timestamp_before
    if position >= footer_position:
        raise LayoutFault("the index in its footer leads out of the frames")


def _unpack(layout: struct.Struct, data: Buffer) -> tuple[Any, ...]:
    if len(data) != layout.size:
        raise LayoutFault(f"{len(data)} bytes where {layout.size} were expected")
    return layout.unpack(data)


def _from_json(body: Buffer, kind: type[_Decoded], what: str) -> _Decoded:
    try:
        return decode_json(bytes(body), kind)
    except DocumentFault as error:
        raise LayoutFault(f"the {what} cannot be read: {error}") from None


def encode_frame(codec: FrameCodec, payload: Buffer) -> bytes | None:
    """The payload compressed; None where that would not make it smaller."""
    try:
        match codec:
            case FrameCodec.NONE:
                return None
            case FrameCodec.LZ4:
                encoded = lz4.compress_block(payload, store_size=False)
            case FrameCodec.ZSTD:
                encoded = zstd.compress(payload, level=_ZSTD_LEVEL)
    except CompressionError:
        return None
    return bytes(encoded) if len(encoded) < len(payload) else None


def decode_frame(codec: FrameCodec, stored: Buffer, payload_size_bytes: int) -> Buffer:
    """The payload again; ``FrameNotDecodable`` unless it comes out at exactly the size that was noted."""
    if codec is FrameCodec.NONE:
        payload, size_bytes = stored, len(stored)
    else:
        payload = bytearray(payload_size_bytes)
        size_bytes = _decompress_into(codec, stored, payload)
    if size_bytes != payload_size_bytes:
        raise FrameNotDecodable(f"its batches take {size_bytes} bytes, not {payload_size_bytes}")
    return payload


def _decompress_into(codec: FrameCodec, stored: Buffer, payload: bytearray) -> int:
    try:
        if codec is FrameCodec.LZ4:
            return int(lz4.decompress_block_into(stored, payload, output_len=len(payload)))
        return int(zstd.decompress_into(stored, payload))
    except DecompressionError as error:
        raise FrameNotDecodable(f"its {codec.name.lower()} data cannot be decompressed: {error}") from None
