"""Builds record batches of magic 2.

Offsets are kept as given, so a batch may be sparse: compaction takes records out and leaves the first and the last
offset of the batch as they were.
"""

import struct
from collections.abc import Iterable

from quorate.kernel.checksum import crc32c
from quorate.kernel.ids import (
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    LeaderEpoch,
    Offset,
    ProducerEpoch,
    ProducerId,
)
from quorate.records.batch import (
    CONTROL_MASK,
    DELETE_HORIZON_MASK,
    HEADER_SIZE_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    Compression,
    TimestampType,
)
from quorate.records.compression import compress
from quorate.records.record import NO_TIMESTAMP, Record, encode_varint

FIRST_OFFSET = Offset(0)
NO_SEQUENCE = -1

_BEFORE_CRC = struct.Struct(">qiibI")
_UNDER_CRC = struct.Struct(">hiqqqhii")
_MAX_OFFSET_DELTA = 2**31 - 1

_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: Offset = FIRST_OFFSET,
    last_offset_delta: int | None = None,
    leader_epoch: LeaderEpoch = NO_LEADER_EPOCH,
    compression: Compression = Compression.NONE,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
    max_timestamp: int | None = None,
    delete_horizon_ms: int | None = None,
    producer_id: ProducerId = NO_PRODUCER_ID,
    producer_epoch: ProducerEpoch = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    is_transactional: bool = False,
    is_control: bool = False,
) -> bytes:
    """Encode the records, whose offsets ascend from ``base_offset`` or later, as one batch.

    ``last_offset_delta`` and ``max_timestamp`` come from the records unless given. A batch without records needs
    ``last_offset_delta``: compaction keeps such a header where it tells a producer's last sequence. With
    ``delete_horizon_ms`` the base timestamp is the time from which tombstones in the batch may go (KIP-534).
    """
    records = list(records)
    base_timestamp = _base_timestamp(records, delete_horizon_ms)
    if last_offset_delta is None:
        last_offset_delta = _last_offset_delta(records, base_offset)
    payload = _encode_records(records, base_offset, base_timestamp, last_offset_delta)
    if not records:
        compression = Compression.NONE
    if max_timestamp is None:
        max_timestamp = max((record.timestamp for record in records), default=NO_TIMESTAMP)
    attributes = (
        compression
        | (TIMESTAMP_TYPE_MASK if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
        | (TRANSACTIONAL_MASK if is_transactional else 0)
        | (CONTROL_MASK if is_control else 0)
        | (DELETE_HORIZON_MASK if delete_horizon_ms is not None else 0)
    )
    under_crc = _UNDER_CRC.pack(
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _seal(base_offset, leader_epoch, under_crc, compress(compression, payload))


def _seal(base_offset: Offset, leader_epoch: LeaderEpoch, under_crc: bytes, payload: bytes) -> bytes:
    """Put the CRC and what stands before it in front."""
    crc = crc32c(payload, crc32c(under_crc))
    batch_length = HEADER_SIZE_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    return b"".join((_BEFORE_CRC.pack(base_offset, batch_length, leader_epoch, MAGIC, crc), under_crc, payload))


def _base_timestamp(records: list[Record], delete_horizon_ms: int | None) -> int:
    if delete_horizon_ms is not None:
        return delete_horizon_ms
    return records[0].timestamp if records else NO_TIMESTAMP


def _last_offset_delta(records: list[Record], base_offset: Offset) -> int:
    if not records:
        raise ValueError("a batch without records needs last_offset_delta")
    return records[-1].offset - base_offset


def _encode_records(records: list[Record], base_offset: Offset, base_timestamp: int, last_offset_delta: int) -> bytes:
    if not 0 <= last_offset_delta <= _MAX_OFFSET_DELTA:
        raise ValueError(f"a batch cannot span {last_offset_delta + 1} offsets")
    parts: list[bytes] = []
    previous = -1
    for record in records:
        offset_delta = record.offset - base_offset
        if not previous < offset_delta <= last_offset_delta:
            raise ValueError(f"offset {record.offset} is out of order in a batch from {base_offset}")
        previous = offset_delta
        body = _encode_body(record, offset_delta, record.timestamp - base_timestamp)
        parts.append(encode_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def _encode_body(record: Record, offset_delta: int, timestamp_delta: int) -> bytes:
    parts = [b"\x00", encode_varint(timestamp_delta), encode_varint(offset_delta)]
    _append_bytes(parts, record.key)
    _append_bytes(parts, record.value)
    if not record.headers:
        parts.append(_NO_HEADERS)
        return b"".join(parts)
    parts.append(encode_varint(len(record.headers)))
    for key, value in record.headers:
        _append_bytes(parts, key.encode("utf-8", "surrogateescape"))
        _append_bytes(parts, value)
    return b"".join(parts)


def _append_bytes(parts: list[bytes], value: bytes | None) -> None:
    if value is None:
        parts.append(_NULL)
    else:
        parts.append(encode_varint(len(value)))
        parts.append(value)
