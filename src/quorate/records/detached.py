"""A batch whose header can be changed while its records stay where they are.

Who sends a stored batch as another producer changes a few bytes of its header. Apart, the header is a small copy, and
the records go from the memory they were read into to the socket.
"""

from typing import NamedTuple

from crc32c import crc32c

from quorate.kernel.ids import ProducerEpoch, ProducerId
from quorate.kernel.ports import Buffer
from quorate.records.batch import CRC_START, HEADER_SIZE_BYTES, pack_crc, pack_producer


class DetachedBatch(NamedTuple):
    header: bytearray  # All before the records; the owner's to change.
    records: memoryview

    @property
    def size_bytes(self) -> int:
        return len(self.header) + len(self.records)


def detach(batch: Buffer) -> DetachedBatch:
    """The records are a view of the batch, which must not change any more."""
    view = memoryview(batch)
    return DetachedBatch(bytearray(view[:HEADER_SIZE_BYTES]), view[HEADER_SIZE_BYTES:])


def patch_producer(
    batch: DetachedBatch, producer_id: ProducerId, producer_epoch: ProducerEpoch, base_sequence: int
) -> None:
    """Make the batch another producer's, and renew its CRC for all that was changed in the header."""
    header = batch.header
    pack_producer(header, producer_id, producer_epoch, base_sequence)
    pack_crc(header, crc32c(batch.records, crc32c(header[CRC_START:])))
