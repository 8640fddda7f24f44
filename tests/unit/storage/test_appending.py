from random import Random

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.records.batch import HEADER_SIZE_BYTES, TimestampType, check_crc, read_header
from quorate.records.errors import CorruptBatch
from quorate.storage.config import LogConfig
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import (
    NOW_MS,
    PRODUCER,
    append,
    append_values,
    batch_of,
    open_log,
    produced,
    records_in,
    segment_names,
    values_in,
)

HOUR_MS = 3_600_000


def code_of(failure: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return failure.value.code


def test_batches_get_their_offsets_and_the_epoch_of_the_leader(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    first = append(log, batch_of(b"a", b"b"))
    second = append(log, batch_of(b"c"), epoch=LeaderEpoch(4))

    assert (first.base_offset, first.last_offset, first.duplicate) == (0, 1, False)
    assert (second.base_offset, second.last_offset, second.log_append_time_ms) == (2, 2, -1)
    assert [record.offset for record in records_in(log)] == [0, 1, 2]
    assert (log.log_end_offset, log.latest_epoch) == (3, 4)
    assert log.end_offset_for_epoch(LeaderEpoch(1)) == (1, 2)


def test_the_base_offset_that_a_client_sends_is_not_trusted(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    append(log, batch_of(b"a", base_offset=Offset(77)))

    assert records_in(log)[0].offset == 0


def test_a_batch_is_patched_and_not_encoded_again(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"before")
    batch = batch_of(b"a", b"b")

    append(log, batch)

    stored = log.read(Offset(1), max_bytes=10_000, up_to_offset=Offset(3)).read()
    assert read_header(stored).base_offset == 1
    assert stored[16:] == batch[16:]


def test_several_batches_in_one_append_all_get_offsets(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    info = append(log, batch_of(b"a", b"b") + batch_of(b"c") + batch_of(b"d", b"e"))

    assert (info.base_offset, info.last_offset) == (0, 4)
    assert [(record.offset, record.value) for record in records_in(log)] == list(
        enumerate([b"a", b"b", b"c", b"d", b"e"])
    )


def test_bytes_that_are_not_whole_batches_are_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    for content in (b"", batch_of(b"a")[:-1], batch_of(b"a") + b"rest"):
        with pytest.raises(CorruptBatch):
            append(log, content)
    assert log.log_end_offset == 0


def test_log_append_time_stamps_every_record_and_renews_the_crc(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(message_timestamp_type=TimestampType.LOG_APPEND_TIME))

    info = append(log, batch_of(b"a", b"b", timestamps=[5, 6]), now_ms=NOW_MS + 7)

    stored = log.read(Offset(0), max_bytes=10_000, up_to_offset=Offset(2)).read()
    check_crc(stored, 0, read_header(stored))
    assert info.log_append_time_ms == NOW_MS + 7
    assert [record.timestamp for record in records_in(log)] == [NOW_MS + 7] * 2


def test_a_batch_above_max_message_bytes_is_refused(disk: SimulatedDisk) -> None:
    size_bytes = len(batch_of(b"x" * 100))
    log = open_log(disk, LogConfig(max_message_bytes=size_bytes))

    append(log, batch_of(b"x" * 100))
    with pytest.raises(KafkaError) as failure:
        append(log, batch_of(b"x" * 101))

    assert code_of(failure) is ErrorCode.MESSAGE_TOO_LARGE
    assert log.log_end_offset == 1


@pytest.mark.parametrize(
    ("timestamps", "accepted"),
    [
        ([NOW_MS + HOUR_MS], True),
        ([NOW_MS + HOUR_MS + 1], False),
        ([NOW_MS, NOW_MS + HOUR_MS + 1], False),
        ([NOW_MS - 1000], True),
        ([NOW_MS - 1001], False),
        ([-1], True),
    ],
)
def test_records_too_far_from_the_time_of_the_broker_are_refused(
    disk: SimulatedDisk, timestamps: list[int], accepted: bool
) -> None:
    log = open_log(disk, LogConfig(message_timestamp_before_max_ms=1000))
    batch = batch_of(*[b"value"] * len(timestamps), timestamps=timestamps)

    if accepted:
        append(log, batch)
        return
    with pytest.raises(KafkaError) as failure:
        append(log, batch)
    assert code_of(failure) is ErrorCode.INVALID_TIMESTAMP
    assert log.log_end_offset == 0


def test_a_retry_gives_no_duplicate_and_the_same_offset(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"before")
    first = append(log, produced(0, 2))
    append(log, produced(2))

    again = append(log, produced(0, 2))

    assert again.duplicate
    assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
    assert log.log_end_offset == 4


def test_a_refused_sequence_does_not_count_as_seen(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, produced(0))

    with pytest.raises(KafkaError) as failure:
        append(log, produced(5))
    assert code_of(failure) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    assert append(log, produced(1)).base_offset == 1


def test_a_full_disk_takes_nothing_and_the_log_goes_on(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, produced(0))
    size_bytes = log.size_bytes
    disk.free_bytes = HEADER_SIZE_BYTES + 3

    with pytest.raises(KafkaError) as failure:
        append(log, batch_of(b"x" * 10) + produced(1))

    assert code_of(failure) is ErrorCode.KAFKA_STORAGE_ERROR
    assert (log.log_end_offset, log.size_bytes) == (1, size_bytes)
    disk.free_bytes = 1 << 30
    assert append(log, produced(1)).base_offset == 1
    assert values_in(log) == [b"value", b"value"]


def test_what_a_full_disk_took_of_a_write_does_not_come_back_after_a_crash(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"kept")
    log.sync()
    disk.free_bytes = len(batch_of(b"lost")) + 1
    with pytest.raises(KafkaError):
        append(log, batch_of(b"lost") * 2)

    disk.crash()

    assert values_in(open_log(disk)) == [b"kept"]


def test_a_segment_is_rolled_before_it_exceeds_its_size(disk: SimulatedDisk) -> None:
    size_bytes = len(batch_of(b"x"))
    log = open_log(disk, LogConfig(segment_bytes=2 * size_bytes))

    append_values(log, *[b"x"] * 5)

    assert segment_names(disk) == [0, 2, 4]
    assert values_in(log) == [b"x"] * 5
    with pytest.raises(KafkaError) as failure:
        append(log, batch_of(b"x") * 3)
    assert code_of(failure) is ErrorCode.RECORD_LIST_TOO_LARGE


def test_a_segment_is_rolled_when_its_first_record_is_old(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_ms=1000))

    for age_ms in (0, 999, 1000, 1001, 2002):
        append(log, batch_of(b"x", timestamps=[NOW_MS + age_ms]))

    assert segment_names(disk) == [0, 3, 4]


def test_a_compacted_segment_is_rolled_in_time_to_be_compacted(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(cleanup_policy=frozenset({"compact"}), max_compaction_lag_ms=1000))

    for age_ms in (0, 1001):
        append(log, batch_of(b"x", timestamps=[NOW_MS + age_ms]))

    assert segment_names(disk) == [0, 1]


def test_a_segment_is_rolled_when_its_index_is_full(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=0, segment_index_bytes=24))

    append_values(log, *[b"x"] * 6)

    assert len(segment_names(disk)) > 1
    assert values_in(log) == [b"x"] * 6


def test_a_follower_keeps_offsets_and_epochs_as_they_are(disk: SimulatedDisk) -> None:
    leader, follower = open_log(disk), open_log(SimulatedDisk(Random(1)))
    append(leader, batch_of(b"a", b"b"), epoch=LeaderEpoch(2))
    append(leader, produced(0), epoch=LeaderEpoch(5))
    content = leader.read(Offset(0), max_bytes=10_000, up_to_offset=Offset(3)).read()

    info = follower.append_as_follower(content)

    assert (info.base_offset, info.last_offset) == (0, 2)
    assert follower.read(Offset(0), max_bytes=10_000, up_to_offset=Offset(3)).read() == content
    assert follower.latest_epoch == 5
    assert follower.producers.get(PRODUCER) is not None


def test_a_follower_takes_holes_but_nothing_twice(disk: SimulatedDisk) -> None:
    log = open_log(disk)

    log.append_as_follower(batch_of(b"a", base_offset=Offset(5)))
    with pytest.raises(CorruptBatch):
        log.append_as_follower(batch_of(b"b", base_offset=Offset(5)))

    assert [(record.offset, record.value) for record in records_in(log)] == [(5, b"a")]


def test_a_follower_never_stores_a_batch_with_a_bad_crc(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    content = bytearray(batch_of(b"a") + batch_of(b"b", base_offset=Offset(1)))
    content[-1] ^= 1

    with pytest.raises(CorruptBatch):
        log.append_as_follower(bytes(content))

    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_an_append_does_not_sync(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    syncs = 0

    def count() -> None:
        nonlocal syncs
        syncs += 1

    disk.while_syncing = count
    append_values(log, *[b"x"] * 50)

    assert syncs == 0
