import pytest

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.log_times import offset_for_timestamp, offset_of_max_timestamp
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import (
    PRODUCER,
    append,
    append_values,
    batch_of,
    open_log,
    produced,
    segment_names,
    values_in,
)

SIZE_BYTES = len(batch_of(b"x"))
SMALL_SEGMENTS = LogConfig(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0)


@pytest.fixture
def log(disk: SimulatedDisk) -> PartitionLog:
    """Values 0 to 7, one batch each, in three segments; epochs 1, 2 and 3."""
    log = open_log(disk, SMALL_SEGMENTS)
    for value, epoch in zip(b"01234567", [1, 1, 2, 2, 2, 3, 3, 3], strict=True):
        append(log, batch_of(bytes([value])), epoch=LeaderEpoch(epoch))
    log.sync()
    return log


@pytest.mark.parametrize("offset", [1, 3, 4, 6, 7])
def test_the_log_ends_where_it_was_truncated_to_and_goes_on_from_there(
    disk: SimulatedDisk, log: PartitionLog, offset: int
) -> None:
    log.truncate_to(Offset(offset))

    assert (log.log_end_offset, log.synced_end_offset) == (offset, offset)
    assert append(log, batch_of(b"n"), epoch=LeaderEpoch(4)).base_offset == offset
    assert values_in(log) == [b"%d" % value for value in range(offset)] + [b"n"]
    log.sync()
    disk.crash()
    assert values_in(open_log(disk, SMALL_SEGMENTS)) == [b"%d" % value for value in range(offset)] + [b"n"]


@pytest.mark.parametrize("offset", [0, 1, 4, 7])
def test_a_sync_that_begins_during_a_truncation_claims_nothing_that_goes(
    disk: SimulatedDisk, log: PartitionLog, offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does in a thread of its own, wherever the truncation waits for the disk."""
    sync_directory, durability = disk.sync_directory, log.durability
    ends: list[int] = []

    def and_a_log(directory: str) -> None:
        sync_directory(directory)
        if not (durability._lock.locked() or durability._one_at_a_time.locked()):  # There it would have to wait.
            ends.append(log.log_end_offset)
            log.sync()

    append(log, batch_of(b"8"), epoch=LeaderEpoch(3))
    monkeypatch.setattr(disk, "sync_directory", and_a_log)

    log.truncate_to(Offset(offset))

    assert ends
    assert log.synced_end_offset <= log.log_end_offset == offset


def test_a_truncation_is_durable_at_once(disk: SimulatedDisk, log: PartitionLog) -> None:
    log.truncate_to(Offset(4))
    disk.crash()

    log = open_log(disk, SMALL_SEGMENTS)

    assert values_in(log) == [b"0", b"1", b"2", b"3"]
    assert segment_names(disk) == [0, 3]


def test_a_truncation_beyond_the_end_changes_nothing(log: PartitionLog) -> None:
    log.truncate_to(Offset(8))
    log.truncate_to(Offset(100))

    assert log.log_end_offset == 8


def test_a_truncation_inside_of_a_batch_takes_all_of_it(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, batch_of(b"a", b"b"))
    append(log, batch_of(b"c", b"d", b"e"))

    log.truncate_to(Offset(3))

    assert log.log_end_offset == 2
    assert values_in(log) == [b"a", b"b"]


def test_a_truncation_forgets_epochs_that_are_gone(log: PartitionLog) -> None:
    log.truncate_to(Offset(5))

    assert log.latest_epoch == 2
    assert log.end_offset_for_epoch(LeaderEpoch(2)) == (2, 5)
    assert log.end_offset_for_epoch(LeaderEpoch(3)) == (-1, -1)


def test_a_truncation_forgets_what_producers_wrote_after(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=400))
    for sequence in range(12):
        append(log, produced(sequence))
    log.sync()

    log.truncate_to(Offset(7))

    entry = log.producers.get(PRODUCER)
    assert entry is not None
    assert entry.last_sequence == 6
    assert append(log, produced(5)).duplicate
    assert append(log, produced(7)).base_offset == 7


def test_times_of_truncated_records_are_forgotten(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    for age_ms in range(10):
        append(log, batch_of(b"x", timestamps=[1_700_000_000_000 + age_ms]))

    log.truncate_to(Offset(6))

    highest = offset_of_max_timestamp(log)
    assert highest is not None
    assert highest.offset == 5
    assert offset_for_timestamp(log, 1_700_000_000_006) is None


@pytest.mark.parametrize("offset", [3, 8, 50])
def test_a_log_that_starts_anew_is_empty_at_its_new_start(disk: SimulatedDisk, log: PartitionLog, offset: int) -> None:
    log.truncate_fully_and_start_at(Offset(offset))

    assert (log.log_start_offset, log.log_end_offset, log.synced_end_offset) == (offset,) * 3
    assert (log.latest_epoch, log.size_bytes, values_in(log)) == (-1, 0, [])
    disk.crash()
    log = open_log(disk, SMALL_SEGMENTS)
    assert (log.log_start_offset, log.log_end_offset) == (offset, offset)
    assert append(log, batch_of(b"n")).base_offset == offset


def test_a_truncation_below_the_start_empties_the_log(log: PartitionLog) -> None:
    log.delete_records_before(Offset(5))

    log.truncate_to(Offset(2))

    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


def test_a_truncation_into_the_batch_that_holds_the_start_empties_the_log(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, batch_of(b"a", b"b", b"c", b"d"))
    log.delete_records_before(Offset(1))

    log.truncate_to(Offset(3))

    assert (log.log_start_offset, log.log_end_offset) == (1, 1)


def test_appends_after_a_truncation_are_found_by_readers_at_the_tail(log: PartitionLog) -> None:
    log.truncate_to(Offset(7))
    append_values(log, b"n", b"m")

    assert values_in(log)[-3:] == [b"6", b"n", b"m"]
    assert log.read(Offset(8), max_bytes=1000, up_to_offset=Offset(9)).length == SIZE_BYTES


def test_a_producer_whose_records_were_deleted_is_known_after_a_truncation(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=400))
    append(log, produced(0))
    append_values(log, *[b"x"] * 8)
    log.delete_records_before(Offset(6))

    log.truncate_to(Offset(8))

    assert append(log, produced(1)).base_offset == 8
    assert append(log, produced(0)).duplicate
