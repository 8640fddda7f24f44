"""Checking a produced batch before it is stored, with the errors that Apache Kafka gives: its header, then its records.

``validate_produced`` looks at the header and the CRC only. The partition checks the size of the batch, its producer and
its highest timestamp.

``open_batch`` looks at single records: keys that must be there, times, another codec. A topic asks for it where it is
compacted, limits how old a record may be, or has a ``compression.type`` of its own. The records are walked over one by
one, so that the cost is theirs, however small the batch is that came; none is made into an object. The size to which a
batch may expand is bounded by the largest batch that its topic takes.
"""

import msgspec

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_ID
from quorate.kernel.native import native
from quorate.kernel.ports import Buffer
from quorate.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    check_crc,
    header_of,
    read_batches,
    read_header,
    with_payload,
)
from quorate.records.compression import compress
from quorate.records.errors import CorruptBatch, InvalidRecord, UnsupportedMagic
from quorate.records.record import NO_TIMESTAMP, VARINT_BITS, VARLONG_BITS, read_folded, read_payload, unfold

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7  # KIP-110
_HIGHEST_CODEC = max(Compression)
_NULL = 1  # The folded length -1.
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
#: How many times the largest batch of a topic its records may be, once they are decompressed. Producers
#: apply their limits before they compress, so that theirs are seldom larger than one batch.
_EXPANSION = 16
_MIN_LIMIT_BYTES = 1024 * 1024
_MAX_LIMIT_BYTES = 256 * 1024 * 1024


_read_header = None if native is None else native.read_produced_header


def validate_produced(buffer: Buffer, *, produce_version: int, may_have_holes: bool = False) -> BatchHeader:
    """Check the records of one partition in a Produce request of version 3 or later.

    Only a batch that keeps its offsets may have holes between them.
    Returns the header of the batch; since Produce 3 there is exactly one.
    """
    if _read_header is not None:
        fields = _read_header(buffer, produce_version, may_have_holes)
        if fields is not None:
            return header_of(fields)
    return validate_produced_in_python(buffer, produce_version, may_have_holes=may_have_holes)


def validate_produced_in_python(buffer: Buffer, produce_version: int, *, may_have_holes: bool) -> BatchHeader:
    """The same without native code, and what is wrong with the batch."""
    try:
        batches = read_batches(buffer)
    except UnsupportedMagic as error:
        raise InvalidRecord(f"Produce {produce_version} takes message format 2 only, not {error.magic}") from None
    if len(batches) != 1:
        raise InvalidRecord(f"Produce {produce_version} takes exactly one batch per partition, not {len(batches)}")
    position, header = batches[0]
    check_crc(buffer, position, header)
    if header.attributes:
        _check_attributes(header.attributes, produce_version)
    if may_have_holes:
        _check_sparse_offsets(header)
    else:
        _check_offsets(header)
    _check_producer(header)
    return header


def _check_attributes(attributes: int, produce_version: int) -> None:
    codec = attributes & COMPRESSION_MASK
    if codec > _HIGHEST_CODEC:
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression codec {codec}")
    if produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD and codec == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs Produce {FIRST_PRODUCE_VERSION_WITH_ZSTD} or later, not {produce_version}",
        )
    if attributes & CONTROL_MASK:
        raise InvalidRecord("clients may not write control batches")
    if attributes & TIMESTAMP_TYPE_MASK:
        raise KafkaError(ErrorCode.INVALID_TIMESTAMP, "only the broker sets the timestamp type LogAppendTime")


def _check_offsets(header: BatchHeader) -> None:
    """A producer's batch is dense: the broker gives offsets to the batch alone, never to its records."""
    if header.record_count <= 0:
        raise InvalidRecord(f"a batch of {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise InvalidRecord(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")


def _check_sparse_offsets(header: BatchHeader) -> None:
    if header.record_count < 0 or header.last_offset_delta < max(0, header.record_count - 1):
        raise InvalidRecord(f"{header.record_count} records with a last offset delta of {header.last_offset_delta}")


def _check_producer(header: BatchHeader) -> None:
    if header.producer_id <= NO_PRODUCER_ID:
        if header.attributes & TRANSACTIONAL_MASK:
            raise InvalidRecord("a transactional batch without a producer id")
        return
    if header.base_sequence < 0:
        raise InvalidRecord(f"producer id {header.producer_id} with sequence {header.base_sequence}")
    if header.producer_epoch < 0:
        raise InvalidRecord(f"producer id {header.producer_id} with epoch {header.producer_epoch}")


class OpeningRules(msgspec.Struct, frozen=True, kw_only=True):
    """The demands of a topic on the records of a batch."""

    requires_keys: bool = False
    #: No record may be older, except those without a time. None where any may.
    earliest_timestamp: int | None = None
    #: The codec to store the batch with; None leaves it as it is.
    codec: Compression | None = None
    #: Of all records, decompressed.
    limit_bytes: int = _MAX_LIMIT_BYTES

    @property
    def looks_at_records(self) -> bool:
        return self.requires_keys or self.earliest_timestamp is not None

    def apply_to(self, header: BatchHeader) -> bool:
        """Whether the batch has to be opened at all."""
        return self.looks_at_records or (self.codec is not None and header.compression is not self.codec)


def opening_limit_bytes(max_message_bytes: int) -> int:
    return min(max(max_message_bytes * _EXPANSION, _MIN_LIMIT_BYTES), _MAX_LIMIT_BYTES)


def open_batch(batch: memoryview, rules: OpeningRules) -> memoryview:
    """The batch as it is to be stored: itself, or with its records in the codec of the rules.

    Raises what is wrong with its records, and ``ExpandsTooFar`` at the limit.
    """
    header = read_header(batch)
    payload = read_payload(batch, 0, header, limit_bytes=rules.limit_bytes)
    check_records(payload, header, requires_keys=rules.requires_keys, earliest_timestamp=rules.earliest_timestamp)
    if rules.codec is None or header.compression is rules.codec:
        return batch
    return memoryview(with_payload(batch, rules.codec, compress(rules.codec, payload)))


def check_records(
    data: bytes, header: BatchHeader, *, requires_keys: bool, earliest_timestamp: int | None = None
) -> None:
    """Walk over the records of a payload: each in its place and whole, and as its topic wants it."""
    base_timestamp = header.base_timestamp
    last_offset_delta = header.last_offset_delta << 1
    lowest = _INT64_MIN if earliest_timestamp is None else earliest_timestamp
    size_bytes = len(data)
    position, previous = 0, -1
    try:
        for _ in range(header.record_count):
            size, position = read_folded(data, position, VARINT_BITS)
            end = position + (size >> 1)
            timestamp_delta, position = read_folded(data, position + 1, VARLONG_BITS)
            offset_delta, position = read_folded(data, position, VARINT_BITS)
            if (size | offset_delta) & 1 or not previous < offset_delta <= last_offset_delta:
                raise CorruptBatch(f"a record with offset delta {unfold(offset_delta)} is out of order or of no size")
            previous = offset_delta
            length, position = read_folded(data, position, VARINT_BITS)
            if length & 1:
                _check_no_key(length, requires_keys=requires_keys)
            else:
                position += length >> 1
            position = _pass_bytes(data, position)
            position = _pass_headers(data, position) if data[position] else position + 1
            if position != end or end > size_bytes:
                raise CorruptBatch(f"the fields of a record of {size >> 1} bytes end {position - end} bytes off")
            timestamp = base_timestamp + unfold(timestamp_delta)
            if not lowest <= timestamp <= _INT64_MAX:
                _check_time(timestamp, earliest_timestamp)
    except IndexError:
        raise CorruptBatch(f"the batch ends before its {header.record_count} records do") from None
    if position != size_bytes:
        raise CorruptBatch(f"{size_bytes - position} bytes behind the last record")


def _pass_headers(data: bytes, position: int) -> int:
    count, position = read_folded(data, position, VARINT_BITS)
    if count & 1:
        raise CorruptBatch(f"negative number of headers {unfold(count)}")
    for _ in range(count >> 1):
        length, position = read_folded(data, position, VARINT_BITS)
        if length & 1:
            raise CorruptBatch("a header without a key")
        position = _pass_bytes(data, position + (length >> 1))
    return position


def _pass_bytes(data: bytes, position: int) -> int:
    length, position = read_folded(data, position, VARINT_BITS)
    if length & 1:
        _require_null(length)
        return position
    return position + (length >> 1)


def _require_null(length: int) -> None:
    if length != _NULL:
        raise CorruptBatch(f"negative length {unfold(length)}")


def _check_no_key(length: int, *, requires_keys: bool) -> None:
    _require_null(length)
    if requires_keys:
        raise InvalidRecord("a compacted topic takes no record without a key")


def _check_time(timestamp: int, earliest: int | None) -> None:
    """A time that is out of the ordinary: damaged, too old, or none."""
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise CorruptBatch(f"timestamp {timestamp} has more than 64 bits")
    if earliest is not None and NO_TIMESTAMP < timestamp < earliest:
        raise KafkaError(
            ErrorCode.INVALID_TIMESTAMP,
            f"timestamp {timestamp} is earlier than {earliest}, the earliest that the topic takes",
        )
