"""A batch that is sent as another producer's: its header changes, its records are never copied."""

import pytest

from quorate.kernel.ids import Offset, ProducerEpoch, ProducerId
from quorate.records.batch import Compression, check_crc, detach, patch_producer, read_header
from quorate.records.builder import build_batch
from quorate.records.record import Record


@pytest.mark.parametrize("record_count", [0, 1, 500])
def test_producer_is_patched_with_the_crc_of_the_whole(record_count: int) -> None:
    records = [Record(Offset(index), 5, b"key", b"value-%d" % index, ()) for index in range(record_count)]
    stored = build_batch(records, last_offset_delta=max(record_count, 1) - 1, compression=Compression.ZSTD)
    batch = detach(stored)

    patch_producer(batch, ProducerId(2**40), ProducerEpoch(12), 34)

    sent = b"".join(batch)
    before, after = read_header(stored), read_header(sent)
    check_crc(sent, 0, after)
    assert batch.size_bytes == len(sent) == len(stored)
    assert after == before._replace(
        producer_id=ProducerId(2**40), producer_epoch=ProducerEpoch(12), base_sequence=34, crc=after.crc
    )


def test_records_stay_where_they_are_and_the_stored_header_as_it_was() -> None:
    stored = bytearray(build_batch([Record(Offset(0), 5, b"key", b"value", ())]))
    before = bytes(stored)

    batch = detach(stored)
    patch_producer(batch, ProducerId(1), ProducerEpoch(1), 1)

    assert batch.records.obj is stored
    assert stored == before
