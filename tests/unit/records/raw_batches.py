"""Batches put together byte by byte, so that each part can be wrong on its own."""

import struct

from crc32c import crc32c

from quorate.records.batch import Compression
from quorate.records.compression import compress
from quorate.records.record import encode_varint


def raw_record(
    *,
    timestamp_delta: bytes = b"\x00",
    offset_delta: bytes = b"\x00",
    key: bytes = b"\x01",
    value: bytes = b"\x01",
    headers: bytes = b"\x00",
    missing_bytes: int = 0,
) -> bytes:
    """A record of encoded fields; ``missing_bytes`` are told in its size and not there."""
    body = b"\x00" + timestamp_delta + offset_delta + key + value + headers
    return encode_varint(len(body) + missing_bytes) + body


def batch_of_payload(
    payload: bytes,
    record_count: int,
    *,
    compression: Compression = Compression.NONE,
    attributes: int | None = None,
    last_offset_delta: int = 0,
    base_timestamp: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytes:
    """A batch with a right CRC around whatever the payload is."""
    under_crc = struct.pack(
        ">hiqqqhii",
        compression if attributes is None else attributes,
        last_offset_delta,
        base_timestamp,
        base_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    ) + compress(compression, payload)
    return struct.pack(">qiibI", 0, len(under_crc) + 9, -1, 2, crc32c(under_crc)) + under_crc
