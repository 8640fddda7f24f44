"""Compaction of a log with transactions: what was aborted goes, and nothing that was committed changes its meaning."""

from random import Random

import pytest

from quorate.kernel.ids import Offset, ProducerId
from quorate.records.batch import iterate_batches
from quorate.storage.cleaner import clean
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.committed_reader import committed_records, last_stable_offset
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.unit.storage.batches import NOW_MS, append, batch_of, open_log
from tests.unit.storage.transactions import FIRST, SECOND, committed_values, end, transactional

CONFIG = LogConfig(
    segment_bytes=300,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


def put(log: PartitionLog, producer_id: ProducerId, key: bytes, value: bytes) -> None:
    entry = log.producers.get(producer_id)
    sequence = 0 if entry is None else entry.last_sequence + 1
    append(log, transactional(producer_id, sequence, value, key=key))


def fill(log: PartitionLog, count: int = 6) -> None:
    """Records of other keys, so that what is before them is in closed segments."""
    for number in range(count):
        append(log, batch_of(b"fill %d" % number, key=b"fill %d" % number))


def compact(disk: SimulatedDisk, log: PartitionLog, now_ms: int = NOW_MS) -> None:
    log.sync()
    plan = log.plan_cleaning(now_ms, up_to_offset=last_stable_offset(log))
    assert plan is not None
    assert log.install(clean(disk, plan))


def markers_in(log: PartitionLog) -> list[Offset]:
    """The markers that still say something."""
    markers = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        content = log.read(offset, max_bytes=1, up_to_offset=log.log_end_offset, minimum_one_batch=True).read()
        for _, header in iterate_batches(content, strict=True):
            offset = header.next_offset
            if header.is_control and header.record_count:
                markers.append(header.base_offset)
    return markers


def test_aborted_records_go_and_supersede_nothing(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"committed")
    end(log, FIRST, commit=True)
    put(log, FIRST, b"a", b"aborted")
    end(log, FIRST, commit=False)
    fill(log)
    before = committed_values(log)

    compact(disk, log)

    assert committed_values(log) == before
    assert before[0] == b"committed"
    content = log.read(Offset(0), max_bytes=1 << 20, up_to_offset=log.log_end_offset).read()
    assert b"aborted" not in content


def test_what_is_not_stable_is_not_compacted(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"first")
    end(log, FIRST, commit=True)
    put(log, SECOND, b"a", b"open")
    fill(log)
    log.sync()

    assert log.plan_cleaning(NOW_MS) is None


def test_a_marker_stays_while_its_transaction_has_batches_and_then_for_its_time(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"aborted")
    end(log, FIRST, commit=False)
    put(log, FIRST, b"b", b"committed")
    end(log, FIRST, commit=True)
    fill(log)

    compact(disk, log)
    assert markers_in(log) == [1, 3]

    fill(log)
    compact(disk, log)  # Now nothing is left of the first transaction: its marker gets a horizon.
    assert markers_in(log) == [1, 3]

    fill(log)
    compact(disk, log, NOW_MS + 1000)
    assert markers_in(log) == [3]
    assert committed_values(open_log(disk, CONFIG))[0] == b"committed"


def test_readers_are_no_longer_told_of_a_transaction_whose_marker_is_gone(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"aborted")
    end(log, FIRST, commit=False)
    put(log, FIRST, b"b", b"committed")
    end(log, FIRST, commit=True)
    for round_number in range(3):
        fill(log)
        compact(disk, log, NOW_MS + 1000 * round_number)

    piece = log.read(Offset(0), max_bytes=1 << 20, up_to_offset=log.log_end_offset)
    assert log.aborted_transactions(piece, Offset(0)) == []


def test_an_epoch_that_only_a_marker_tells_is_known_after_compaction(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"aborted")
    end(log, FIRST, commit=False, epoch=1, transaction_version=2)
    for round_number in range(4):
        fill(log)
        compact(disk, log, NOW_MS + 1000 * round_number)
    log.close()
    for name in disk.list_directory("/data/topic-0"):
        if name.endswith(".snapshot"):
            disk.remove(f"/data/topic-0/{name}")

    entry = open_log(disk, CONFIG).producers.get(FIRST)

    assert entry is not None
    assert entry.epoch == 1


def log_with_a_snapshot_inside_of_a_transaction(disk: SimulatedDisk) -> PartitionLog:
    log = open_log(disk, CONFIG)
    put(log, FIRST, b"a", b"aborted")
    log.close()
    log = open_log(disk, CONFIG)
    end(log, FIRST, commit=False, epoch=1, transaction_version=2)
    return log


def open_without_newer_snapshots(disk: SimulatedDisk) -> PartitionLog:
    """They have rotted, or a crash came before they were written: recovery goes back to the next one, or to none."""
    for name in disk.list_directory("/data/topic-0"):
        if name.endswith(".snapshot") and int(name[:20]) > 1:
            disk.remove(f"/data/topic-0/{name}")
    return open_log(disk, CONFIG)


def test_no_transaction_is_open_again_once_its_marker_is_gone(disk: SimulatedDisk) -> None:
    log = log_with_a_snapshot_inside_of_a_transaction(disk)
    for round_number in range(3):
        fill(log)
        compact(disk, log, NOW_MS + 1000 * round_number)
    assert markers_in(log) == []
    log.sync()

    log = open_without_newer_snapshots(disk)

    assert last_stable_offset(log) == log.log_end_offset


def test_nor_after_a_power_cut_at_any_step_of_the_exchange(disk: SimulatedDisk) -> None:
    done = False
    for steps in range(1, 200):
        disk.remove_tree("/data/topic-0")
        log = log_with_a_snapshot_inside_of_a_transaction(disk)
        for round_number in range(2):
            fill(log)
            compact(disk, log, NOW_MS + 1000 * round_number)
        fill(log)
        disk.steps_until_power_cut = steps
        try:
            compact(disk, log, NOW_MS + 2000)
            done = True
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None

        log = open_without_newer_snapshots(disk)

        assert last_stable_offset(log) == log.log_end_offset
        if done:
            break
    assert done


@pytest.mark.parametrize("seed", range(8))
def test_random_transactions_read_the_same_after_any_number_of_rounds(disk: SimulatedDisk, seed: int) -> None:
    random = Random(seed)
    log = open_log(disk, CONFIG)
    expected: dict[bytes, bytes] = {}
    open_writes: dict[ProducerId, dict[bytes, bytes]] = {FIRST: {}, SECOND: {}}
    for step in range(150):
        producer = random.choice([FIRST, SECOND])
        if random.random() < 0.6:
            key, value = b"key %d" % random.randrange(4), b"value %d" % step
            other = SECOND if producer is FIRST else FIRST
            if key not in open_writes[other]:  # Writers of one key at a time, or its last value depends on the order.
                put(log, producer, key, value)
                open_writes[producer][key] = value
        else:
            commits = random.random() < 0.5
            end(log, producer, commit=commits)
            expected |= open_writes[producer] if commits else {}
            open_writes[producer] = {}
        if step % 20 == 19:
            last_stable_offset(log)
            log.sync()
            plan = log.plan_cleaning(NOW_MS + 100 * step)
            if plan is not None:
                assert log.install(clean(disk, plan))
        if step % 50 == 49:
            log.close()
            log = open_log(disk, CONFIG)
    for producer in (FIRST, SECOND):
        end(log, producer, commit=False)

    assert {record.key: record.value for record in committed_records(log, last_stable_offset(log))} == expected


def test_a_power_cut_at_any_step_of_the_exchange_shows_no_aborted_record(disk: SimulatedDisk) -> None:
    for steps in range(1, 70):
        log = open_log(disk, CONFIG)
        log.truncate_fully_and_start_at(Offset(0))
        for number in range(4):
            put(log, FIRST, b"a", b"aborted %d" % number)
            end(log, FIRST, commit=False)
            put(log, SECOND, b"b", b"committed %d" % number)
            end(log, SECOND, commit=True)
        fill(log)
        log.sync()
        last_stable_offset(log)
        plan = log.plan_cleaning(NOW_MS)
        assert plan is not None
        disk.steps_until_power_cut = steps
        try:
            log.install(clean(disk, plan))
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None

        left = [value for value in committed_values(open_log(disk, CONFIG)) if value is not None]
        assert b"committed 3" in left
        assert not [value for value in left if value.startswith(b"aborted")]
