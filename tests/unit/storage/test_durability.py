import threading

import pytest

from quorate.kernel.errors import ErrorCode, KafkaError
from quorate.kernel.ids import Offset
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.unit.storage.batches import append, append_values, batch_of, open_log, produced, values_in

SIZE_BYTES = len(batch_of(b"x"))


def test_nothing_is_durable_before_a_sync_and_everything_after(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a", b"b")
    assert (log.log_end_offset, log.synced_end_offset) == (2, 0)

    log.sync()

    assert log.synced_end_offset == 2
    disk.crash()
    assert values_in(open_log(disk)) == [b"a", b"b"]


def test_a_sync_covers_every_segment_since_the_last_one(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE_BYTES))
    append_values(log, *[b"x"] * 7)

    log.sync()
    disk.crash()

    log = open_log(disk)
    assert log.log_end_offset == 7
    assert log.recovery.scanned_from == 6, "segments that are durable and complete are not checked again"


def test_what_is_appended_while_a_sync_runs_is_not_claimed(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a")

    def append_meanwhile() -> None:
        disk.while_syncing = lambda: None
        append_values(log, b"b")

    disk.while_syncing = append_meanwhile
    log.sync()

    assert (log.log_end_offset, log.synced_end_offset) == (2, 1)
    log.sync()
    assert log.synced_end_offset == 2


def test_what_is_truncated_while_a_sync_runs_is_not_claimed(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a", b"b", b"c")

    def rewrite_meanwhile() -> None:
        disk.while_syncing = lambda: None
        log.truncate_to(Offset(1))
        append_values(log, b"other", b"other")

    disk.while_syncing = rewrite_meanwhile
    log.sync()

    assert (log.log_end_offset, log.synced_end_offset) == (3, 1)


def test_a_truncation_during_a_sync_keeps_the_recovery_point_low(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE_BYTES))
    append_values(log, *[b"x"] * 7)

    def truncate_meanwhile() -> None:
        disk.while_syncing = lambda: None
        log.truncate_to(Offset(1))
        append_values(log, b"other", b"other")

    disk.while_syncing = truncate_meanwhile
    log.sync()
    disk.crash()

    assert open_log(disk).recovery.scanned_from <= 1


def test_after_a_failed_sync_nothing_is_claimed_and_the_log_is_offline(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a")
    log.sync()
    append_values(log, b"b")
    disk.syncs_fail = True

    with pytest.raises(KafkaError) as failure:
        log.sync()
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.synced_end_offset == 1

    disk.syncs_fail = False
    for use in (
        log.sync,
        log.close,
        lambda: append_values(log, b"c"),
        lambda: log.read(Offset(0), max_bytes=1, up_to_offset=Offset(1)),
        lambda: log.truncate_to(Offset(0)),
    ):
        with pytest.raises(KafkaError, match="offline"):
            use()
    assert log.synced_end_offset == 1


def test_a_failed_sync_of_a_truncation_takes_the_log_offline(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a", b"b")
    disk.syncs_fail = True

    with pytest.raises(KafkaError):
        log.truncate_to(Offset(1))
    disk.syncs_fail = False

    with pytest.raises(KafkaError, match="offline"):
        append_values(log, b"c")


def test_two_threads_may_sync_one_log(disk: SimulatedDisk) -> None:
    log = open_log(disk, LogConfig(segment_bytes=2 * SIZE_BYTES))
    append_values(log, *[b"x"] * 9)
    second = threading.Thread(target=log.sync)

    def start_second() -> None:
        disk.while_syncing = lambda: None
        second.start()
        append_values(log, *[b"y"] * 4)

    disk.while_syncing = start_second
    log.sync()
    second.join()

    assert log.synced_end_offset == 13
    disk.crash()
    assert open_log(disk).log_end_offset == 13


def test_a_closed_log_has_nothing_to_check_and_knows_its_producers(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a")
    for sequence in range(3):
        append(log, produced(sequence))
    log.close()

    again = open_log(disk)

    assert (again.recovery.scanned_from, again.log_end_offset, again.synced_end_offset) == (4, 4, 4)
    assert again.latest_epoch == log.latest_epoch
    assert append(again, produced(1)).base_offset == 2, "a retry of an earlier batch, also after a restart"
    assert append(again, produced(3)).base_offset == 4


def test_a_log_of_a_new_partition_needs_no_file_before_its_first_append(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    log.sync()
    assert disk.list_directory(log.directory) == []

    log.close()

    assert open_log(disk).log_end_offset == 0


def test_a_deleted_log_is_gone_and_a_new_one_starts_empty(disk: SimulatedDisk) -> None:
    log = open_log(disk)
    append_values(log, b"a")

    log.delete()

    assert disk.list_directory("/data") == []
    assert open_log(disk).log_end_offset == 0


def test_a_deletion_that_was_interrupted_leaves_no_log_under_the_name(disk: SimulatedDisk) -> None:
    for steps in range(1, 6):
        log: PartitionLog = open_log(disk)
        append_values(log, b"a")
        log.close()
        disk.remove_tree("/data/topic-0-delete")
        disk.sync_directory("/data")
        disk.steps_until_power_cut = steps
        try:
            log.delete()
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        names = disk.list_directory("/data/topic-0")
        assert names == [] or "00000000000000000000.log" in names
