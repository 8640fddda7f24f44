"""The times of the records of one batch. Pure."""

from quorate.kernel.ids import Offset
from quorate.kernel.ports import Buffer
from quorate.records.attributes import TimestampType
from quorate.records.batch import read_header
from quorate.records.errors import CorruptBatch
from quorate.records.record import read_payload
from quorate.records.varint import VARINT_BITS, VARLONG_BITS, read_folded, unfold

_INT64_MAX = 2**63 - 1


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
