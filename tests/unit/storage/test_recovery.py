from random import Random

import pytest

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.log_times import offset_for_timestamp
from tests.simulation.disk import SimulatedDisk
from tests.unit.storage.batches import (
    DIRECTORY,
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

SIZE_BYTES = len(batch_of(b"x"))
SMALL_SEGMENTS = LogConfig(segment_bytes=3 * SIZE_BYTES, index_interval_bytes=0)
FIRST = f"{DIRECTORY}/00000000000000000000"


def killed(disk: SimulatedDisk, log: PartitionLog) -> None:
    """The process dies without closing the log; the operating system keeps what it has."""
    del log
    for name in disk.list_directory(DIRECTORY):
        disk.open(f"{DIRECTORY}/{name}").sync()
    disk.sync_directory(DIRECTORY)


def overwrite(disk: SimulatedDisk, path: str, position: int, content: bytes) -> None:
    file = disk.open(path)
    old = file.read(0, file.size())
    file.truncate(0)
    file.append([old[:position] + content + old[position + len(content) :]])


@pytest.mark.parametrize("cut", [1, 20, 60, SIZE_BYTES - 1])
def test_a_torn_batch_at_the_end_is_cut_off(disk: SimulatedDisk, cut: int) -> None:
    log = open_log(disk)
    append_values(log, b"x", b"x", b"x")
    killed(disk, log)
    disk.open(f"{FIRST}.log").truncate(3 * SIZE_BYTES - cut)

    log = open_log(disk)

    assert log.log_end_offset == 2
    assert log.recovery.truncated_bytes == SIZE_BYTES - cut
    assert log.recovery.reason is not None
    assert append(log, batch_of(b"y")).base_offset == 2
    assert values_in(log) == [b"x", b"x", b"y"]


@pytest.mark.parametrize("position", [0, 7, 8, 16, 17, 30, 60, SIZE_BYTES - 1])
def test_the_log_ends_before_the_first_batch_with_a_flipped_byte(disk: SimulatedDisk, position: int) -> None:
    log = open_log(disk)
    append_values(log, b"x", b"x", b"x", b"x")
    killed(disk, log)
    byte = disk.open(f"{FIRST}.log").read(SIZE_BYTES + position, 1)[0]
    overwrite(disk, f"{FIRST}.log", SIZE_BYTES + position, bytes([byte ^ 0x40]))

    log = open_log(disk)

    assert values_in(log)[:1] == [b"x"]
    if position == 7:  # The base offset is not under the CRC: it shows in the order, as a hole or a step back.
        assert log.log_end_offset in (1, 66)
    else:
        assert log.log_end_offset == 1


def test_zeros_after_the_last_batch_are_cut_off(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"x")
    killed(disk, log)
    disk.open(f"{FIRST}.log").append([bytes(4096)])

    log = open_log(disk)

    assert (log.log_end_offset, log.size_bytes) == (1, SIZE_BYTES)


def test_what_recovery_cut_off_does_not_come_back(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"x", b"x")
    killed(disk, log)
    disk.open(f"{FIRST}.log").append([batch_of(b"torn", base_offset=Offset(2))[:-1]])
    open_log(disk)

    disk.crash()

    log = open_log(disk)
    assert (log.log_end_offset, log.recovery.truncated_bytes) == (2, 0)


def test_segments_after_a_bad_batch_are_dropped(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    append_values(log, *[b"x"] * 9)
    killed(disk, log)
    overwrite(disk, f"{DIRECTORY}/00000000000000000003.log", SIZE_BYTES + 70, b"??")

    log = open_log(disk, SMALL_SEGMENTS)

    assert log.log_end_offset == 4
    assert log.recovery.dropped_segments == (6,)
    assert segment_names(disk) == [0, 3]


def test_segments_after_a_lost_one_are_dropped(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    append_values(log, *[b"x"] * 9)
    killed(disk, log)
    disk.remove(f"{DIRECTORY}/00000000000000000003.log")

    log = open_log(disk, SMALL_SEGMENTS)

    assert log.log_end_offset == 3
    assert segment_names(disk) == [0]


def test_a_killed_process_loses_nothing_that_the_system_has(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    append_values(log, *[b"x"] * 8)
    append(log, produced(0), epoch=LeaderEpoch(6))
    killed(disk, log)

    log = open_log(disk, SMALL_SEGMENTS)

    assert (log.log_end_offset, log.synced_end_offset, log.recovery.reason) == (9, 9, None)
    assert log.latest_epoch == 6
    assert log.producers.get(PRODUCER) is not None
    disk.crash()
    assert open_log(disk, SMALL_SEGMENTS).log_end_offset == 9, "recovery makes durable what it found"


@pytest.mark.parametrize("damage", ["missing", "short", "cut inside an entry", "garbage", "empty"])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_a_damaged_index_is_made_anew(disk: SimulatedDisk, suffix: str, damage: str) -> None:
    config = LogConfig(segment_bytes=20 * SIZE_BYTES, index_interval_bytes=0)
    log = open_log(disk, config)
    for age_ms in range(50):
        append(log, batch_of(b"x", timestamps=[1_700_000_000_000 + age_ms]))
    log.close()
    path = FIRST + suffix
    size = disk.open(path).size()
    match damage:
        case "missing":
            disk.remove(path)
        case "short":
            disk.open(path).truncate(size // 2 // 24 * 24)
        case "cut inside an entry":
            disk.open(path).truncate(size - 3)
        case "garbage":
            overwrite(disk, path, 0, Random(1).randbytes(size))
        case _:
            disk.open(path).truncate(0)

    log = open_log(disk, config)

    assert [record.offset for record in records_in(log)] == list(range(50))
    found = offset_for_timestamp(log, 1_700_000_000_013)
    assert found is not None
    assert found.offset == 13
    assert offset_for_timestamp(log, 1_700_000_000_019) is not None


def test_epochs_are_found_in_the_batches_when_their_file_is_lost(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    for epoch in (1, 1, 2, 2, 2, 5, 5):
        append(log, batch_of(b"x"), epoch=LeaderEpoch(epoch))
    log.close()
    disk.remove(f"{DIRECTORY}/leader-epoch-checkpoint")

    log = open_log(disk, SMALL_SEGMENTS)

    ends = {epoch: log.end_offset_for_epoch(LeaderEpoch(epoch)) for epoch in (1, 2, 5)}
    assert ends == {1: (1, 2), 2: (2, 5), 5: (5, 7)}
    assert [log.epoch_at(Offset(offset)) for offset in (0, 2, 6)] == [1, 2, 5]


def test_a_damaged_producer_snapshot_is_made_up_for_by_the_log(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    for sequence in range(8):
        append(log, produced(sequence))
    log.close()
    snapshots = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".snapshot")]
    for name in snapshots:
        overwrite(disk, f"{DIRECTORY}/{name}", 10, b"????")

    log = open_log(disk, SMALL_SEGMENTS)

    assert snapshots
    assert append(log, produced(7)).duplicate
    assert append(log, produced(8)).base_offset == 8


def test_an_epoch_without_a_record_is_forgotten(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append(log, batch_of(b"x"), epoch=LeaderEpoch(3))
    log.assign_epoch_start(LeaderEpoch(9))
    assert log.latest_epoch == 9
    log.close()

    assert open_log(disk).latest_epoch == 3


def test_what_an_interrupted_compaction_left_is_removed(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"x")
    log.close()
    for suffix in (".log.cleaned", ".index.cleaned", ".timeindex.cleaned"):
        disk.open(FIRST + suffix, create=True)

    log = open_log(disk)

    assert values_in(log) == [b"x"]
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".cleaned")]


def test_a_folder_without_our_checkpoints_is_taken_as_apache_kafka_left_it(disk: SimulatedDisk) -> None:
    log = open_log(disk, SMALL_SEGMENTS)
    append_values(log, *[b"x"] * 9)
    log.close()
    for name in disk.list_directory(DIRECTORY):
        if "checkpoint" in name or name.startswith("00000000000000000000."):
            disk.remove(f"{DIRECTORY}/{name}")

    log = open_log(disk, SMALL_SEGMENTS)

    assert (log.log_start_offset, log.log_end_offset) == (3, 9)
    assert values_in(log) == [b"x"] * 6


def test_zeros_behind_an_index_are_not_taken_for_entries_of_the_first_batch(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(index_interval_bytes=0))
    append_values(log, *[b"x"] * 5)
    log.close()
    for suffix in (".index", ".timeindex"):
        disk.open(FIRST + suffix).append([bytes(48)])

    log = open_log(disk, LogConfig(index_interval_bytes=0))
    append_values(log, *[b"x"] * 5)
    log.close()

    content = disk.open(f"{FIRST}.index").read(0, 1000)
    offsets = [int.from_bytes(content[position : position + 4]) for position in range(0, len(content), 8)]
    assert offsets == list(range(1, 5)) + list(range(6, 10)), "every batch but the first after each opening"
