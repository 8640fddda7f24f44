"""Zigzag varints, as records use them: small numbers of either sign in few bytes.

On the wire a signed number first becomes an unsigned one, which here is called folded: 0, -1, 1, -2 … fold to 0, 1, 2,
3 …, so that odd means negative. The folded number is written in groups of seven bits, the lowest first.
"""

from quorate.records.errors import CorruptBatch

VARINT_BITS = 32
VARLONG_BITS = 64

_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))


def encode_varint(value: int) -> bytes:
    """Encode a signed number; varints and varlongs differ only in how much a reader accepts."""
    folded = value << 1 if value >= 0 else ~(value << 1)
    if folded < 0x80:
        return _ONE_BYTE[folded]
    encoded = bytearray()
    while folded >= 0x80:
        encoded.append(folded & 0x7F | 0x80)
        folded >>= 7
    encoded.append(folded)
    return bytes(encoded)


def read_folded(data: bytes, position: int, bits: int) -> tuple[int, int]:
    """The folded number of up to ``bits`` at ``position``, and the position after it; ``IndexError`` past the end."""
    folded = data[position]
    if folded < 0x80:
        return folded, position + 1
    high = data[position + 1]
    if high < 0x80:
        return folded & 0x7F | high << 7, position + 2
    return _read_long(data, position, bits)


def _read_long(data: bytes, position: int, bits: int) -> tuple[int, int]:
    folded = 0
    for shift in range(0, bits, 7):
        byte = data[position]
        position += 1
        folded |= (byte & 0x7F) << shift
        if byte < 0x80 and not folded >> bits:
            return folded, position
    raise CorruptBatch(f"a variable-length number is longer than {bits} bits")


def unfold(folded: int) -> int:
    return folded >> 1 ^ -(folded & 1)
