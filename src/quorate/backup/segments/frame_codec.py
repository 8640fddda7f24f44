"""Compression of frames: groups of batches that their producer left uncompressed.

Speed comes before the last per cent: a backup must keep up with the brokers. LZ4 blocks and zstd frames carry no size
of their own here, since the frame's head has it.
"""

from enum import IntEnum

from cramjam import CompressionError, DecompressionError, lz4, zstd

from quorate.kernel.buffers import Buffer

_ZSTD_LEVEL = 1


class FrameCodec(IntEnum):
    """The number is stored in the frame's head; the name, in lower case, stands in config files."""

    NONE = 0
    LZ4 = 1
    ZSTD = 2


class FrameNotDecodable(ValueError):
    pass


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
