"""Chains of runs over a log that grows, is compacted, truncated, deleted from and created anew."""

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.manifests.catalog import ManifestCatalog
from quorate.backup.manifests.manifest import GapReason, Mode
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.manifests.rules import coverage
from quorate.backup.objects.names import attempt_name, segment_name
from quorate.backup.objects.storage import StoredObject
from quorate.backup.planning.planner import Plan
from quorate.backup.retention.orphans import find_orphans, old_enough
from quorate.backup.segments.verification import verify_deeply
from quorate.kernel.ids import Offset
from quorate.records.batch import iterate_batches
from tests.unit.backup.backup_runs import (
    BACKUP_ID,
    OTHER_TOPIC_ID,
    PartitionLog,
    copy_all,
    copy_range,
    partition_entry,
    read_back,
    run_backup,
)
from tests.unit.backup.batches import PARTITION, TOPIC, TOPIC_ID
from tests.unit.backup.memory_storage import MemoryStorage

CHANGES = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 9), st.integers(0, 3)),
    st.tuples(st.just("append"), st.integers(1, 9), st.integers(0, 0)),
    st.tuples(st.just("delete"), st.integers(0, 200), st.just(0)),
    st.tuples(st.just("compact"), st.integers(1, 255), st.just(0)),
    st.tuples(st.just("truncate"), st.integers(0, 200), st.just(0)),
    st.tuples(st.just("elect"), st.just(0), st.just(0)),
)
OPERATIONS = st.one_of(CHANGES, CHANGES, CHANGES, st.tuples(st.just("backup"), st.integers(0, 2**16), st.just(0)))


def apply(log: PartitionLog, operation: str, number: int, gap: int) -> None:
    match operation:
        case "append":
            log.append(number, gap=gap)
        case "delete":
            log.delete_records(number)
        case "compact":
            log.compact(lambda index: bool(number >> (index % 8) & 1))
        case "truncate":
            log.elect_unclean(max(number, log.log_start_offset))
        case "elect":
            log.elect_clean()


@settings(max_examples=120, deadline=None)
@given(st.lists(OPERATIONS, max_size=25), st.data())
def test_whatever_happens_between_runs_the_backup_ends_up_equal_to_the_log(
    operations: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    storage = MemoryStorage()
    log = PartitionLog()

    def execute_with_faults(plan: Plan) -> list[RangeResult]:
        """Some tasks run twice, some stop on an error, some bring nothing, and the log changes under them."""
        results = []
        for task in plan.tasks:
            for each in task.ranges:
                for change, value, gap in data.draw(st.lists(CHANGES, max_size=2)):
                    apply(log, change, value, gap)
                for attempt in range(data.draw(st.integers(0, 2))):
                    stops_after = data.draw(st.one_of(st.none(), st.integers(0, 3)))
                    name = f"run{storage.calls}-{attempt}"
                    results.append(copy_range(storage, log, each, name, stops_after=stops_after))
        return data.draw(st.permutations(results))

    for number, (operation, value, gap) in enumerate(operations):
        if operation == "backup":
            log.held_back, range_bytes = value % 10, 20 + value % 400
            run_backup(storage, log, f"run{number}", execute=execute_with_faults, range_bytes=range_bytes)
            log.held_back = 0
        else:
            apply(log, operation, value, gap)
    manifest = run_backup(storage, log, "last")

    assert manifest.is_complete
    entry = partition_entry(manifest)
    assert entry is not None
    assert entry.end_offset == log.end_offset
    found = read_back(storage, manifest)
    headers = [header for each in found for _, header in iterate_batches(each, strict=True)]
    assert all(before.last_offset < after.base_offset for before, after in itertools.pairwise(headers))
    held = set(found)
    assert [each for _, each in log.batches if each not in held] == []
    for segment in entry.segments:
        verify_deeply(StoredObject(storage, segment.name), segment)


def test_an_incremental_chain_copies_each_batch_once() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for number in range(4):
        for _ in range(5):
            log.append(3)
        run_backup(storage, log, f"run{number}")

    manifest = ManifestCatalog(storage, BACKUP_ID).latest()

    assert manifest is not None
    assert manifest.number == 4
    assert read_back(storage, manifest) == [data for _, data in log.batches]
    assert find_orphans(storage.objects(), [manifest]) == []


def test_a_snapshot_holds_the_whole_log_anew_and_the_older_one_stays_readable() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    log.append(5)
    first = run_backup(storage, log, "one", mode=Mode.SNAPSHOT)
    before = [data for _, data in log.batches]
    log.append(5)
    second = run_backup(storage, log, "two", mode=Mode.SNAPSHOT)

    assert read_back(storage, first) == before
    assert read_back(storage, second) == [data for _, data in log.batches]
    assert first.object_names().isdisjoint(second.object_names())
    assert find_orphans(storage.objects(), [first, second]) == []


def test_a_truncated_tail_is_set_aside_and_what_replaced_it_is_copied() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(6):
        log.append(5)
    run_backup(storage, log, "one", range_bytes=100_000)
    log.elect_unclean(15)
    log.append(20)
    manifest = run_backup(storage, log, "two")

    entry = partition_entry(manifest)
    assert entry is not None
    assert [(tail.start_offset, tail.end_offset, tail.found_in_manifest) for tail in entry.superseded] == [(15, 30, 2)]
    assert read_back(storage, manifest) == [data for _, data in log.batches]


def test_offsets_that_were_empty_when_they_were_copied_are_copied_when_a_truncation_has_them_written_anew() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    log.append(5)
    log.append(5)
    log.compact(lambda index: index == 0)
    run_backup(storage, log, "one")
    log.elect_unclean(5)
    log.append(3)
    manifest = run_backup(storage, log, "two")

    assert read_back(storage, manifest) == [data for _, data in log.batches]


def test_a_log_that_was_not_truncated_is_not_copied_again() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(3):
        log.append(5)
    log.elect_clean()
    log.append(5)
    log.compact(lambda index: index < 3)
    run_backup(storage, log, "one")
    log.elect_clean()
    manifest = run_backup(storage, log, "two")

    entry = partition_entry(manifest)
    assert entry is not None
    assert entry.superseded == []
    assert len(read_back(storage, manifest)) == 3


def test_what_retention_took_first_is_recorded_and_never_passed_over() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    log.append(10)
    run_backup(storage, log, "one")
    for _ in range(4):
        log.append(10)
    log.delete_records(33)
    manifest = run_backup(storage, log, "two")

    entry = partition_entry(manifest)
    assert entry is not None
    losses = [(gap.start_offset, gap.end_offset, gap.reason) for gap in entry.gaps if gap.reason.is_loss]
    assert losses == [(10, 33, GapReason.RETENTION)]
    assert coverage(entry)[-1].end_offset == 50


def test_retention_during_the_copy_is_a_gap_too() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(10):
        log.append(10)

    def copy_late(plan: Plan) -> list[RangeResult]:
        results = []
        for number, task in enumerate(plan.tasks):
            results += [copy_range(storage, log, each, f"one-{number}") for each in task.ranges]
            log.delete_records(75)
        return results

    manifest = run_backup(storage, log, "one", execute=copy_late)

    entry = partition_entry(manifest)
    assert entry is not None
    assert manifest.is_complete
    assert any(gap.reason is GapReason.RETENTION for gap in entry.gaps)
    held = set(read_back(storage, manifest))
    assert all(data in held for _, data in log.batches)


def test_a_topic_created_anew_under_its_old_name_is_never_mixed_with_its_former_life() -> None:
    storage, old = MemoryStorage(), PartitionLog()
    old.append(10)
    run_backup(storage, old, "one")
    new = PartitionLog(OTHER_TOPIC_ID)
    new.append(4)
    manifest = run_backup(storage, new, "two")

    assert [(topic.generation, topic.topic_id) for topic in manifest.topics] == [
        (1, old.topic_id),
        (2, OTHER_TOPIC_ID),
    ]
    assert read_back(storage, manifest, old.topic_id) == [data for _, data in old.batches]
    assert read_back(storage, manifest, OTHER_TOPIC_ID) == [data for _, data in new.batches]


def test_an_empty_partition_is_recorded() -> None:
    manifest = run_backup(MemoryStorage(), PartitionLog(), "one")

    entry = partition_entry(manifest)
    assert entry is not None
    assert (entry.start_offset, entry.end_offset, entry.segments) == (0, 0, [])


def test_offsets_that_were_compacted_away_are_covered_without_being_called_lost() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(8):
        log.append(10)
    log.compact(lambda index: index in (0, 7))
    manifest = run_backup(storage, log, "one")

    entry = partition_entry(manifest)
    assert entry is not None
    assert (entry.start_offset, entry.end_offset) == (0, 80)
    assert not any(gap.reason.is_loss for gap in entry.gaps)
    assert read_back(storage, manifest) == [data for _, data in log.batches]


def test_a_snapshot_does_not_overshoot_its_captured_end() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    log.append(10)

    def copy_while_the_log_grows(plan: Plan) -> list[RangeResult]:
        log.append(10)
        return copy_all(storage, log, "one")(plan)

    manifest = run_backup(storage, log, "one", execute=copy_while_the_log_grows)

    entry = partition_entry(manifest)
    assert entry is not None
    assert (entry.end_offset, entry.captured_end_offset) == (10, 10)
    assert len(read_back(storage, manifest)) == 1


def test_of_two_attempts_at_a_range_one_is_named_and_the_other_is_an_orphan() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    log.append(10)

    def twice(plan: Plan) -> list[RangeResult]:
        ranges = [each for task in plan.tasks for each in task.ranges]
        return [copy_range(storage, log, each, attempt) for attempt in ("b", "a") for each in ranges]

    manifest = run_backup(storage, log, "one", execute=twice)

    orphans = find_orphans(storage.objects(), [manifest])
    assert [name.rpartition("-")[2] for name in manifest.object_names()] == ["a.qseg"]
    assert [each.name.rpartition("-")[2] for each in orphans] == ["b.qseg"]


def test_only_orphans_older_than_the_safe_age_may_be_deleted() -> None:
    storage = MemoryStorage()
    for name, storage.now_ms in (("topics/old.qseg", 100), ("topics/young.qseg", 900), ("topics/x.partial", 100)):
        storage.store(name, b"")
    storage.store("manifests/000001.json", b"")

    orphans = find_orphans(storage.objects(), [])
    may_go = [each.name for each in old_enough(orphans, now_ms=1_000, safe_age_ms=500)]

    assert [each.name for each in orphans] == ["topics/old.qseg", "topics/x.partial", "topics/young.qseg"]
    assert may_go == ["topics/old.qseg", "topics/x.partial"]


def test_no_orphan_of_a_run_may_be_deleted_while_the_run_still_writes() -> None:
    storage = MemoryStorage()

    def write(run_id: str, offset: int, now_ms: int, suffix: str = "") -> str:
        attempt = attempt_name(run_id, f"{offset:x}00")
        name = segment_name(TOPIC, TOPIC_ID, PARTITION, Offset(offset), attempt) + suffix
        storage.now_ms = now_ms
        storage.store(name, b"")
        return name

    killed = {write("aaaaaaaa1", 0, 100), write("aaaaaaaa1", 7, 200, ".partial")}
    write("bbbbbbbb1", 0, 100)
    write("bbbbbbbb1", 7, 900, ".partial")

    may_go = {each.name for each in old_enough(find_orphans(storage.objects(), []), now_ms=1_000, safe_age_ms=500)}

    assert may_go == killed


def test_a_range_without_result_stops_its_partition_and_the_next_run_goes_on_from_there() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(12):
        log.append(7)

    def without_the_second(plan: Plan) -> list[RangeResult]:
        ranges = sorted((each for task in plan.tasks for each in task.ranges), key=lambda each: each.start_offset)
        assert len(ranges) > 2
        return [copy_range(storage, log, each, "one") for index, each in enumerate(ranges) if index != 1]

    first = run_backup(storage, log, "one", execute=without_the_second)
    second = run_backup(storage, log, "two")

    assert not first.is_complete
    assert "no task brought a result" in first.failures[0].message
    assert second.is_complete
    assert read_back(storage, second) == [data for _, data in log.batches]


def test_a_log_that_is_truncated_while_it_is_copied_is_a_failure_that_the_next_run_repairs() -> None:
    storage, log = MemoryStorage(), PartitionLog()
    for _ in range(3):
        log.append(10)
    half = sum(len(data) for _, data in log.batches) // 2

    def copy_around_a_truncation(plan: Plan) -> list[RangeResult]:
        first, second = sorted((task.ranges[0] for task in plan.tasks), key=lambda each: each.start_offset)
        before = copy_range(storage, log, first, "one")
        log.elect_unclean(10)
        log.append(6)
        log.append(14)
        return [before, copy_range(storage, log, second, "one")]

    damaged = run_backup(storage, log, "one", execute=copy_around_a_truncation, range_bytes=half)
    repaired = run_backup(storage, log, "two")

    assert [each.message for each in damaged.failures] == [
        "offsets 15 to 29 were not copied: the log was truncated while it was copied"
    ]
    assert repaired.is_complete
    assert read_back(storage, repaired) == [data for _, data in log.batches]
