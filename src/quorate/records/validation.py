"""Checking a produced batch before it is stored, with the errors that Apache Kafka gives.

``validate_produced`` looks at the header and the CRC only. The partition checks the size of the batch, its producer and
its highest timestamp; ``opening`` looks at single records.
"""

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_ID
from quorate.kernel.ports import Buffer
from quorate.records.batch import (
    COMPRESSION_MASK,
    CONTROL_MASK,
    TIMESTAMP_TYPE_MASK,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Compression,
    check_crc,
    read_batches,
)
from quorate.records.errors import InvalidRecord, UnsupportedMagic

FIRST_PRODUCE_VERSION_WITH_ZSTD = 7  # KIP-110
_HIGHEST_CODEC = max(Compression)


def validate_produced(buffer: Buffer, *, produce_version: int, may_have_holes: bool = False) -> BatchHeader:
    """Check the records of one partition in a Produce request of version 3 or later.

    Only a batch that keeps its offsets may have holes between them.
    Returns the header of the batch; since Produce 3 there is exactly one.
    """
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
