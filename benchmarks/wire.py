"""The few Kafka messages the load needs, as bytes that are built once and only patched afterwards. Pure.

Written by hand and on purpose not with ``quorate.protocol``: the load must be the same for both systems, must cost next
to nothing per request, and must not share a mistake with the broker it measures.
"""

import struct
from collections.abc import Sequence
from random import Random

from crc32c import crc32c

PRODUCE, FETCH, CREATE_TOPICS, DELETE_TOPICS = 0, 1, 19, 20
# The newest versions that still name topics (later ones need topic ids): what current clients send otherwise.
PRODUCE_VERSION, FETCH_VERSION = 12, 12
CREATE_TOPICS_VERSION, DELETE_TOPICS_VERSION = 4, 3

CORRELATION_ID_POSITION = 8
BATCH_HEADER_SIZE_BYTES = 61
CLIENT_ID = b"bench"
TIMEOUT_MS = 30_000

# Behind the batch: no tagged fields, three times.
PRODUCE_TAIL = b"\0\0\0"

_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")


def patch_correlation_id(frame: bytearray, correlation_id: int) -> None:
    _INT32.pack_into(frame, CORRELATION_ID_POSITION, correlation_id)


def build_batch(record_count: int, value_size_bytes: int, random: Random, timestamp_ms: int) -> bytes:
    """A record batch v2 of keyless, uncompressed records whose values do not compress."""
    records = b"".join(_record(delta, random.randbytes(value_size_bytes)) for delta in range(record_count))
    covered = struct.pack(
        ">hiqqqhii", 0, record_count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, record_count
    )  # attributes, last offset delta, first and last timestamp, producer id, epoch, sequence, count
    covered += records
    # Base offset, length, leader epoch, magic, then the checksum of all that follows it.
    return struct.pack(">qiibI", 0, len(covered) + 9, -1, 2, crc32c(covered)) + covered


def records_that_fit(batch_size_bytes: int, value_size_bytes: int) -> int:
    """How many records a producer with this ``batch.size`` puts into one batch: at least one."""
    record_size_bytes = len(_record(1 << 12, bytes(value_size_bytes)))
    return max(1, (batch_size_bytes - BATCH_HEADER_SIZE_BYTES) // record_size_bytes)


def _record(offset_delta: int, value: bytes) -> bytes:
    # Attributes, timestamp delta 0, offset delta, null key, value, no headers.
    body = b"\0\0" + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def produce_request(topic: str, partition: int, batch: bytes) -> tuple[bytes, bytes]:
    """Head (size to records length) and rest of a Produce frame with ``acks=all``."""
    body = b"\0" + struct.pack(">hi", -1, TIMEOUT_MS)  # No transactional id; acks; timeout.
    body += b"\2" + compact_string(topic) + b"\2" + _INT32.pack(partition) + uvarint(len(batch) + 1)
    rest = batch + PRODUCE_TAIL
    return frame_head(PRODUCE, PRODUCE_VERSION, body, len(rest)), rest


class ProduceResponseLayout:
    """Where things stand in the answer to a one-partition Produce; its size is fixed as long as there is no error."""

    def __init__(self, topic: str) -> None:
        name = compact_string(topic)
        # Size, correlation id, tags, one topic, name, one partition, index, error code, base offset.
        self.fields = struct.Struct(f">iixx{len(name)}xxihq")
        # Append time, log start offset, no record errors, null message, tags twice, throttle time, tags.
        self.size_bytes = self.fields.size + 8 + 8 + 1 + 1 + 1 + 1 + 4 + 1


class FetchRequest:
    """A sessionless Fetch of one partition; the correlation id and the offset are patched in place."""

    def __init__(self, topic: str, partition: int, partition_max_bytes: int) -> None:
        before = struct.pack(">iiiibii", -1, 500, 1, 50 << 20, 0, 0, -1)  # Replica, waits, sizes, isolation, session.
        before += b"\2" + compact_string(topic) + b"\2" + struct.pack(">ii", partition, -1)
        after = struct.pack(">iqi", -1, -1, partition_max_bytes) + b"\0\0" + b"\1" + b"\1" + b"\0"
        head = frame_head(FETCH, FETCH_VERSION, before, 8 + len(after))
        self.frame = bytearray(head + bytes(8) + after)
        self._offset_position = len(head)

    def patch(self, correlation_id: int, fetch_offset: int) -> None:
        patch_correlation_id(self.frame, correlation_id)
        _INT64.pack_into(self.frame, self._offset_position, fetch_offset)


class FetchResponseLayout:
    """Reads the answer to a one-partition Fetch up to where its records begin."""

    def __init__(self, topic: str) -> None:
        name = compact_string(topic)
        # Size, correlation id, tags, throttle time, error code, session id, one topic, name, one partition,
        # index, error code, high watermark.
        self.fields = struct.Struct(f">iix4xh4xx{len(name)}xx4xhq")

    def records_span(self, frame: memoryview) -> tuple[int, int]:
        """Start and length of the records in a whole frame."""
        position = self.fields.size + 8 + 8  # Last stable offset, log start offset.
        aborted_count, position = read_uvarint(frame, position)
        if aborted_count > 1:
            raise ValueError("the answer names aborted transactions where there are none")
        position += 4  # Preferred read replica.
        length, position = read_uvarint(frame, position)
        return position, max(0, length - 1)


def create_topics_request(
    topics: Sequence[str], partitions: int, configs: Sequence[tuple[str, str]], replication_factor: int = 1
) -> bytes:
    """All topics alike."""
    shape = struct.pack(">ihi", partitions, replication_factor, 0) + _INT32.pack(len(configs))
    shape += b"".join(string(name) + string(value) for name, value in configs)
    body = _INT32.pack(len(topics)) + b"".join(string(topic) + shape for topic in topics)
    body += struct.pack(">ib", TIMEOUT_MS, 0)
    return frame_head(CREATE_TOPICS, CREATE_TOPICS_VERSION, body, is_flexible=False)


def delete_topics_request(topic: str) -> bytes:
    body = _INT32.pack(1) + string(topic) + _INT32.pack(TIMEOUT_MS)
    return frame_head(DELETE_TOPICS, DELETE_TOPICS_VERSION, body, is_flexible=False)


def topic_error_code(response: bytes, topic: str) -> int:
    """The error code in the answer to a CreateTopics or DeleteTopics of one topic (size already taken off)."""
    # Correlation id, throttle time, one topic, name.
    position = 4 + 4 + 4 + 2 + len(topic.encode())
    code: int = struct.unpack_from(">h", response, position)[0]
    return code


def frame_head(
    api_key: int, api_version: int, body: bytes, rest_size_bytes: int = 0, *, is_flexible: bool = True
) -> bytes:
    header = struct.pack(">hhi", api_key, api_version, 0) + string(CLIENT_ID.decode())
    if is_flexible:
        header += b"\0"  # Tagged fields: none.
    content = header + body
    return _INT32.pack(len(content) + rest_size_bytes) + content


def string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def compact_string(text: str) -> bytes:
    encoded = text.encode()
    return uvarint(len(encoded) + 1) + encoded


def _varint(value: int) -> bytes:
    return uvarint((value << 1) ^ (value >> 63))


def uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_uvarint(buffer: memoryview, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
