"""What a topic takes while it is restored with its offsets."""

import pytest

from quorate.broker.produce.restored_batches import check_restored
from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import NO_PRODUCER_ID, Offset, ProducerEpoch, ProducerId
from quorate.records.builder import build_batch
from quorate.records.record import Record
from quorate.replication.partition_settings import PartitionSettings
from quorate.storage.config import LogConfig

RESTORE = ProducerId(41)
SETTINGS = PartitionSettings(log=LogConfig(), codec=None, min_insync_replicas=1, restore_producer_id=RESTORE)
LATEST = 13


def batch(
    *, base: int = 0, sequence: int = 0, producer_id: ProducerId = RESTORE, last_offset_delta: int = 9, count: int = 1
) -> memoryview:
    return memoryview(
        build_batch(
            [Record(Offset(base + number), 1000, b"k", b"v") for number in range(count)],
            base_offset=Offset(base),
            last_offset_delta=last_offset_delta,
            producer_id=producer_id,
            producer_epoch=ProducerEpoch(0),
            base_sequence=sequence,
        )
    )


@pytest.mark.parametrize("count", [0, 1, 10])
def test_batch_of_the_restore_is_taken_with_its_holes(count: int) -> None:
    given = batch(base=2**31 + 5, sequence=5, count=count)
    assert check_restored(SETTINGS, given, LATEST) is given


@pytest.mark.parametrize("producer_id", [NO_PRODUCER_ID, ProducerId(40)])
def test_other_producers_are_told_that_the_topic_is_being_restored(producer_id: ProducerId) -> None:
    with pytest.raises(KafkaError, match="only the restore may write") as caught:
        check_restored(SETTINGS, batch(producer_id=producer_id), LATEST)
    assert caught.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    "given", [batch(base=7, sequence=6), batch(count=2, last_offset_delta=1)[:-1], batch(base=2**31, sequence=7)]
)
def test_batch_that_is_not_what_it_says_is_refused(given: memoryview) -> None:
    with pytest.raises(KafkaError) as caught:
        check_restored(SETTINGS, given, LATEST)
    assert caught.value.code in (ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
