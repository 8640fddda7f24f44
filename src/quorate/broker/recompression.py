"""Storing batches with the codec that a topic's ``compression.type`` asks for, where their producer used another."""

from quorate.kernel.ids import Offset
from quorate.records.attributes import Compression
from quorate.records.batch import read_header
from quorate.records.builder import build_batch
from quorate.records.record import iterate_records

#: The values of ``compression.type``; None leaves a batch as it is.
CODECS: dict[str, Compression | None] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


def recompress(batch: memoryview, codec: Compression) -> memoryview:
    """The same records with the codec; the batch itself where it has it already."""
    header = read_header(batch)
    if header.compression is codec:
        return batch
    rebuilt = build_batch(
        iterate_records(batch),
        base_offset=Offset(header.base_offset),
        last_offset_delta=header.last_offset_delta,
        compression=codec,
        timestamp_type=header.timestamp_type,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        is_transactional=header.is_transactional,
    )
    return memoryview(bytearray(rebuilt))
