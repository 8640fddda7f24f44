"""Rounds of compaction over a whole log."""

import pytest
from msgspec.structs import replace

from quorate.kernel.ids import Offset
from quorate.records.errors import CorruptBatch
from quorate.records.record import Record
from quorate.storage.cleaner import CleaningPlan, clean
from quorate.storage.config import LogConfig
from quorate.storage.log import PartitionLog
from tests.simulation.disk import PowerCutError, SimulatedDisk
from tests.unit.storage.batches import (
    DIRECTORY,
    NOW_MS,
    PRODUCER,
    append,
    batch_of,
    open_log,
    produced,
    records_in,
    segment_names,
)

SIZE_BYTES = len(batch_of(b"x", key=b"a"))
CONFIG = LogConfig(
    segment_bytes=3 * SIZE_BYTES,
    index_interval_bytes=0,
    cleanup_policy=frozenset({"compact"}),
    min_cleanable_dirty_ratio=0.0,
    delete_retention_ms=1000,
)


def put(log: PartitionLog, text: str, *, age_ms: int = 0) -> None:
    """One record for each letter, which is its key; its value is the offset; a capital letter is a tombstone."""
    for letter in text:
        value = None if letter.isupper() else b"%d" % (log.log_end_offset % 10)
        append(log, batch_of(value, key=letter.lower().encode(), timestamps=[NOW_MS - age_ms]))


def contents(log: PartitionLog) -> str:
    """The letters and offsets of what is left."""
    return " ".join(f"{_letter(record)}{record.offset}" for record in records_in(log))


def _letter(record: Record) -> str:
    assert record.key is not None
    return record.key.decode().upper() if record.value is None else record.key.decode()


def plan_of(log: PartitionLog, now_ms: int = NOW_MS) -> CleaningPlan:
    log.sync()
    plan = log.plan_cleaning(now_ms)
    assert plan is not None
    return plan


def compact(disk: SimulatedDisk, log: PartitionLog, now_ms: int = NOW_MS) -> None:
    assert log.install(clean(disk, plan_of(log, now_ms)))


def test_the_latest_record_of_each_key_stays_with_its_offset(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abacabbcaaa")  # The active segment starts at offset 9.

    compact(disk, log)

    assert contents(log) == "b6 c7 a8 a9 a10"
    assert (log.log_start_offset, log.log_end_offset) == (0, 11)


def test_a_compacted_log_survives_a_crash_and_a_restart(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abacabbcaaa")
    compact(disk, log)
    log.sync()

    disk.crash()
    log = open_log(disk, CONFIG)

    assert contents(log) == "b6 c7 a8 a9 a10"
    log.close()
    assert contents(open_log(disk, CONFIG)) == "b6 c7 a8 a9 a10"


def test_small_segments_are_merged(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaaaaabcda")
    assert segment_names(disk) == [0, 3, 6, 9, 12]

    compact(disk, log)
    put(log, "aaa")
    compact(disk, log)

    assert segment_names(disk) == [0, 9, 12, 15]
    assert contents(log) == "b9 c10 d11 a14 a15"


def test_a_round_starts_where_the_last_one_ended(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abcabcabca")
    compact(disk, log)

    log.sync()
    assert log.plan_cleaning(NOW_MS) is None
    put(log, "ddd")
    assert plan_of(log).first_dirty_offset == 9
    log.close()
    log = open_log(disk, CONFIG)
    assert plan_of(log).first_dirty_offset == 9


def test_nothing_is_compacted_before_enough_of_it_is_dirty(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abcdefghia")
    compact(disk, log)
    log.update_config(replace(CONFIG, min_cleanable_dirty_ratio=0.5))
    put(log, "aaaaaaaa")  # Six of fifteen records are dirty.
    log.sync()
    assert log.plan_cleaning(NOW_MS) is None

    put(log, "aaaaaa")  # Twelve of twenty-one.
    log.sync()
    assert log.plan_cleaning(NOW_MS) is not None


def test_records_younger_than_the_minimum_lag_are_left_alone(disk: SimulatedDisk) -> None:
    log = open_log(disk, replace(CONFIG, min_compaction_lag_ms=100))
    put(log, "aaa", age_ms=200)
    put(log, "aaa", age_ms=50)
    put(log, "a")

    compact(disk, log)

    assert contents(log) == "a2 a3 a4 a5 a6"


def test_records_older_than_the_maximum_lag_are_compacted_however_few(disk: SimulatedDisk) -> None:
    log = open_log(disk, replace(CONFIG, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=1000))
    put(log, "aaab", age_ms=500)
    log.sync()

    assert log.plan_cleaning(NOW_MS) is None
    assert log.plan_cleaning(NOW_MS + 501) is not None


def test_uncommitted_and_unsynced_records_are_left_alone(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaaa")
    assert log.plan_cleaning(NOW_MS) is None

    log.sync()
    assert log.plan_cleaning(NOW_MS, up_to_offset=Offset(2)) is None
    plan = log.plan_cleaning(NOW_MS, up_to_offset=Offset(5))
    assert plan is not None
    assert [source.end_offset for source in plan.sources] == [3]


def test_a_log_that_is_not_compacted_has_no_plan(disk: SimulatedDisk) -> None:
    log = open_log(disk, replace(CONFIG, cleanup_policy=frozenset({"delete"})))
    put(log, "aaaaaaa")
    log.sync()

    assert log.plan_cleaning(NOW_MS) is None


def test_tombstones_may_stay_for_ever(disk: SimulatedDisk) -> None:
    log = open_log(disk, replace(CONFIG, delete_retention_ms=2**63 - 1))
    put(log, "aAbcde")
    for _ in range(2):
        compact(disk, log, NOW_MS + 10**15)
        put(log, "fgh")

    assert contents(log).startswith("A1 ")


def test_tombstones_stay_for_their_time_and_then_go(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abAbbbc")
    compact(disk, log)
    assert contents(log) == "A2 b5 c6"

    put(log, "ddd")
    compact(disk, log, NOW_MS + 999)
    assert contents(log) == "A2 b5 c6 d8 d9"

    put(log, "ddd")
    compact(disk, log, NOW_MS + 1000)
    assert contents(log) == "b5 c6 d11 d12"


def test_producers_are_known_after_their_records_are_compacted_away(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    for sequence in range(3):
        append(log, produced(sequence))
    put(log, "abc")
    append(log, batch_of(b"later", key=b"key"))
    put(log, "abca")
    compact(disk, log)
    log.close()
    for name in disk.list_directory(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{name}")

    log = open_log(disk, CONFIG)

    entry = log.producers.get(PRODUCER)
    assert entry is not None
    assert entry.last_sequence == 2
    assert append(log, produced(2)).duplicate
    assert append(log, produced(3)).base_offset == 11


def test_the_end_of_the_compacted_part_is_not_forgotten(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaa")
    log.close()
    # Everything but the last record is superseded; without a trace of the last batch the next round could not tell
    # where the segment ended.
    put(log := open_log(disk, CONFIG), "a")
    compact(disk, log)

    assert contents(log).endswith("a5 a6")


def test_a_round_that_sees_too_many_keys_stops_and_the_next_goes_on(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abcabcabcabcz")

    assert log.install(clean(disk, plan_of(log), max_keys=2))
    assert contents(log).startswith("a0 b1 c2 ")

    compact(disk, log)
    assert contents(log) == "a9 b10 c11 z12"


def test_work_on_a_log_that_was_truncated_meanwhile_is_thrown_away(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaaa")
    cleaned = clean(disk, plan_of(log))

    log.truncate_to(Offset(4))

    assert not log.install(cleaned)
    assert contents(log) == "a0 a1 a2 a3"
    assert not [name for name in disk.list_directory(DIRECTORY) if name.endswith(".cleaned")]


def test_segments_that_were_deleted_meanwhile_do_not_come_back(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "abcdefabcdefz")
    cleaned = clean(disk, plan_of(log))

    log.delete_records_before(Offset(3))
    log.install(cleaned)

    assert log.log_start_offset == 3
    assert contents(log) == "a6 b7 c8 d9 e10 f11 z12"


def test_appends_go_on_while_a_worker_compacts(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaaa")
    plan = plan_of(log)

    put(log, "bbbb")
    cleaned = clean(disk, plan)
    put(log, "c")
    assert log.install(cleaned)

    assert contents(log) == "a5 a6 b7 b8 b9 b10 c11"


def test_a_rotten_batch_is_never_given_a_fresh_crc(disk: SimulatedDisk) -> None:
    log = open_log(disk, CONFIG)
    put(log, "aaaaaaa")
    plan = plan_of(log)
    file = disk.open(f"{DIRECTORY}/00000000000000000000.log")
    content = file.read(0, file.size())
    file.truncate(0)
    file.append([content[:-1] + b"?"])

    with pytest.raises(CorruptBatch):
        clean(disk, plan)


def test_a_power_cut_at_any_step_leaves_the_log_before_or_after_the_round(disk: SimulatedDisk) -> None:
    for steps in range(1, 60):
        log = open_log(disk, CONFIG)
        log.truncate_fully_and_start_at(Offset(0))
        put(log, "abacabbcaaa")
        plan = plan_of(log)
        disk.steps_until_power_cut = steps
        try:
            log.install(clean(disk, plan))
        except PowerCutError:
            disk.crash()
        disk.steps_until_power_cut = None
        left = contents(open_log(disk, CONFIG))
        # Each group of segments is exchanged by itself.
        assert {"b6", "c7", "a8", "a9", "a10"} <= set(left.split())
        assert set(left.split()) <= {"a0", "b1", "a2", "c3", "a4", "b5", "b6", "c7", "a8", "a9", "a10"}
