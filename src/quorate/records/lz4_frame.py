"""The header of an LZ4 frame and its checksum.

Message format 0 computed this checksum over the frame's magic number too, against the LZ4 specification, and Java
clients keep doing so for that format. Decoders refuse such frames, so the checksum is put right before decoding.
"""

import struct

from quorate.records.errors import CorruptBatch

_FRAME_MAGIC = b"\x04\x22\x4d\x18"
_MAGIC_SIZE_BYTES = 4
_CONTENT_SIZE_FLAG = 0x08
_DICTIONARY_ID_FLAG = 0x01

_MASK = 0xFFFFFFFF
_PRIME_1, _PRIME_2, _PRIME_3, _PRIME_4, _PRIME_5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_UINT32 = struct.Struct("<I")


def with_right_header_checksum(frame: bytes) -> bytes:
    """The same frame with the checksum that the specification asks for."""
    if not frame.startswith(_FRAME_MAGIC) or len(frame) < _MAGIC_SIZE_BYTES + 3:
        raise CorruptBatch("not an LZ4 frame")
    flags = frame[_MAGIC_SIZE_BYTES]
    end = _MAGIC_SIZE_BYTES + 2 + (8 if flags & _CONTENT_SIZE_FLAG else 0) + (4 if flags & _DICTIONARY_ID_FLAG else 0)
    checksum = header_checksum(frame[_MAGIC_SIZE_BYTES:end])
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :]


def header_checksum(descriptor: bytes) -> int:
    """The second byte of the descriptor's xxHash32. A descriptor is at most 14 bytes long."""
    return _xxhash32_of_few(descriptor) >> 8 & 0xFF


def _xxhash32_of_few(data: bytes) -> int:
    """xxHash32 with seed 0 of less than 16 bytes, where its main loop does not run."""
    digest = _PRIME_5 + len(data)
    words_end = len(data) & ~3
    for (word,) in _UINT32.iter_unpack(data[:words_end]):
        digest = _rotate_left(digest + word * _PRIME_3, 17) * _PRIME_4 & _MASK
    for byte in data[words_end:]:
        digest = _rotate_left(digest + byte * _PRIME_5, 11) * _PRIME_1 & _MASK
    digest = (digest ^ digest >> 15) * _PRIME_2 & _MASK
    digest = (digest ^ digest >> 13) * _PRIME_3 & _MASK
    return digest ^ digest >> 16


def _rotate_left(value: int, bits: int) -> int:
    value &= _MASK
    return (value << bits | value >> 32 - bits) & _MASK
