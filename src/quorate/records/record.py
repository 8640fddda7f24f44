"""Single records inside a batch of magic 2, and the varints that they are written in.

On the wire a signed number first becomes an unsigned one, which here is called folded: 0, -1, 1, -2 … fold to 0, 1, 2,
3 …, so that odd means negative (zigzag). The folded number is written in groups of seven bits, the lowest first.

The loops here run once per record, in compaction and in every reader, so they keep numbers folded as long as they can
and leave running past the end to ``IndexError``. Whatever the bytes are, the outcome is records or ``CorruptBatch``.
"""

from collections.abc import Iterator

import msgspec

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.batch import HEADER_SIZE_BYTES, BatchHeader, TimestampType, read_header
from quorate.records.compression import DEFAULT_LIMIT_BYTES, decompress
from quorate.records.errors import CorruptBatch

RecordHeaders = tuple[tuple[str, bytes | None], ...]
NO_TIMESTAMP = -1
_MIN_RECORD_SIZE_BYTES = 7  # Six numbers of one byte and the attributes.
_NULL = 1  # The folded length -1.
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
VARINT_BITS = 32
VARLONG_BITS = 64
_ONE_BYTE = tuple(bytes((number,)) for number in range(0x80))


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record, as consumers see it. Headers keep their order, may repeat a key and may have no value."""

    offset: Offset
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    headers: RecordHeaders = ()


def iterate_records(buffer: Buffer, position: int = 0, *, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> Iterator[Record]:
    """Yield the records of the batch at ``position``, whatever its codec. The CRC is not looked at."""
    header = read_header(buffer, position)
    return records_in_payload(read_payload(buffer, position, header, limit_bytes=limit_bytes), header)


def iterate_keys(
    buffer: Buffer, position: int = 0, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> Iterator[tuple[Offset, bytes | None, bool]]:
    """Yield offset, key and whether there is a value: all that compaction asks, without reading values or headers."""
    header = read_header(buffer, position)
    return _keys_of(read_payload(buffer, position, header, limit_bytes=limit_bytes), header)


def read_payload(
    buffer: Buffer, position: int, header: BatchHeader, *, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytes:
    """The encoded records behind the header, decompressed."""
    end = position + header.size_bytes
    if end > len(buffer):
        raise CorruptBatch(f"batch of {header.size_bytes} bytes in {len(buffer) - position}")
    payload = memoryview(buffer)[position + HEADER_SIZE_BYTES : end]
    if header.record_count == 0 and not payload:
        return b""
    data = decompress(header.compression, payload, limit_bytes=limit_bytes)
    if not 0 <= header.record_count * _MIN_RECORD_SIZE_BYTES <= len(data):
        raise CorruptBatch(f"{header.record_count} records in {len(data)} bytes")
    return data


def records_in_payload(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch whose payload ``read_payload`` gave."""
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    last_offset_delta = header.last_offset_delta << 1
    position, previous = 0, -1
    try:
        for _ in range(header.record_count):
            size, position = read_folded(data, position, VARINT_BITS)
            end = position + (size >> 1)
            # The record's attributes have no meaning yet, and are skipped.
            timestamp_delta, position = read_folded(data, position + 1, VARLONG_BITS)
            offset_delta, position = read_folded(data, position, VARINT_BITS)
            if (size | offset_delta) & 1 or not previous < offset_delta <= last_offset_delta:
                raise _wrong_place(size, offset_delta, header)
            previous = offset_delta
            key, position = _read_bytes(data, position)
            value, position = _read_bytes(data, position)
            headers, position = _read_headers(data, position) if data[position] else ((), position + 1)
            if position != end or end > len(data):
                raise CorruptBatch(f"the fields of a record of {size >> 1} bytes end {position - end} bytes off")
            timestamp = base_timestamp + unfold(timestamp_delta) if append_time is None else append_time
            if not _INT64_MIN <= timestamp <= _INT64_MAX:
                raise CorruptBatch(f"timestamp {timestamp} has more than 64 bits")
            yield Record(Offset(base_offset + (offset_delta >> 1)), timestamp, key, value, headers)
    except IndexError:
        raise _cut_short(header) from None
    if position != len(data):
        raise _left_over(len(data) - position)


def first_at_or_after(
    batch: Buffer, timestamp_ms: int, *, from_offset: Offset, limit_bytes: int
) -> tuple[Offset, int] | None:
    """Offset and time of the first record from ``from_offset`` on that reaches the time.

    Reads no key, value or header. Raises ``ExpandsTooFar`` at the limit.
    """
    header = read_header(batch)
    data = read_payload(batch, 0, header, limit_bytes=limit_bytes)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    append_time = header.max_timestamp if header.timestamp_type is TimestampType.LOG_APPEND_TIME else None
    least_offset_delta = (from_offset - base_offset) << 1
    last_offset_delta = header.last_offset_delta << 1
    size_bytes = len(data)
    position = 0
    try:
        for _ in range(header.record_count):
            size, position = read_folded(data, position, VARINT_BITS)
            end = position + (size >> 1)
            folded, position = read_folded(data, position + 1, VARLONG_BITS)
            offset_delta, position = read_folded(data, position, VARINT_BITS)
            if (size | offset_delta) & 1 or offset_delta > last_offset_delta or not position <= end <= size_bytes:
                raise CorruptBatch(f"a record with offset delta {unfold(offset_delta)} is out of place or of no size")
            position = end
            if offset_delta < least_offset_delta:
                continue
            timestamp = base_timestamp + unfold(folded) if append_time is None else append_time
            if timestamp >= timestamp_ms:
                if timestamp > _INT64_MAX:
                    raise CorruptBatch(f"timestamp {timestamp} has more than 64 bits")
                return Offset(base_offset + (offset_delta >> 1)), timestamp
    except IndexError:
        raise CorruptBatch(f"the batch ends before its {header.record_count} records do") from None
    return None


def _keys_of(data: bytes, header: BatchHeader) -> Iterator[tuple[Offset, bytes | None, bool]]:
    base_offset = header.base_offset
    last_offset_delta = header.last_offset_delta << 1
    position, previous = 0, -1
    try:
        for _ in range(header.record_count):
            size, position = read_folded(data, position, VARINT_BITS)
            end = position + (size >> 1)
            _, position = read_folded(data, position + 1, VARLONG_BITS)
            offset_delta, position = read_folded(data, position, VARINT_BITS)
            if (size | offset_delta) & 1 or not previous < offset_delta <= last_offset_delta:
                raise _wrong_place(size, offset_delta, header)
            previous = offset_delta
            key, position = _read_bytes(data, position)
            if not position < end <= len(data):
                raise _cut_short(header)
            yield Offset(base_offset + (offset_delta >> 1)), key, data[position] != _NULL
            position = end
    except IndexError:
        raise _cut_short(header) from None
    if position != len(data):
        raise _left_over(len(data) - position)


def _read_bytes(data: bytes, position: int) -> tuple[bytes | None, int]:
    """A length and that many bytes; too great a length shows when the record's end is missed."""
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_folded(data, position, VARINT_BITS)
    if length & 1:
        if length != _NULL:
            raise CorruptBatch(f"negative length {unfold(length)}")
        return None, position
    end = position + (length >> 1)
    return data[position:end], end


def _read_headers(data: bytes, position: int) -> tuple[RecordHeaders, int]:
    count, position = read_folded(data, position, VARINT_BITS)
    if count & 1:
        raise CorruptBatch(f"negative number of headers {unfold(count)}")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count >> 1):
        key, position = _read_bytes(data, position)
        if key is None:
            raise CorruptBatch("a header without a key")
        value, position = _read_bytes(data, position)
        headers.append((decode_header_key(key), value))
    return tuple(headers), position


def decode_header_key(key: bytes) -> str:
    """Some producers send other bytes than UTF-8: they are kept as surrogates, so that a copy has the same bytes."""
    return key.decode("utf-8", "surrogateescape")


def _wrong_place(size: int, offset_delta: int, header: BatchHeader) -> CorruptBatch:
    if size & 1:
        return CorruptBatch(f"negative record size {unfold(size)}")
    return CorruptBatch(f"offset delta {unfold(offset_delta)} is out of order or above {header.last_offset_delta}")


def _cut_short(header: BatchHeader) -> CorruptBatch:
    return CorruptBatch(f"the batch ends before its {header.record_count} records do")


def _left_over(count: int) -> CorruptBatch:
    return CorruptBatch(f"{count} bytes behind the last record")


def encode_varint(value: int) -> bytes:
    """Encode a signed number; varints and varlongs differ only in how many bits a reader accepts."""
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
