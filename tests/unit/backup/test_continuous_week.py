"""A continuous backup that nobody looks after: what it keeps, writes and takes to read, in virtual time."""

import os
from itertools import pairwise
from unittest.mock import patch

import pytest

from quorate.backup.manifests import document
from quorate.backup.objects.names import checkpoint_number, is_layer_name, manifest_number, pruned_range
from quorate.backup.retention.compaction import plan_merges
from quorate.backup.retention.holds import Hold
from quorate.backup.retention.prune_policy import MaintenancePolicy
from quorate.backup.spark.upkeep.maintenance import MARK_AGE_MS
from quorate.backup.spark.upkeep.verification import take_inventory
from tests.unit.backup.continuous_weeks import ContinuousBackup

IS_HEAVY = bool(os.environ.get("QUORATE_HEAVY"))
HOUR_S = 3600
DAY_S = 24 * HOUR_S
POLICY = MaintenancePolicy()
#: What the rules keep: the rounds since the last maintenance and those before it, hours, days; and the newest.
MOST_MANIFESTS = 2 * 10 * 30 + POLICY.keep_hourly + POLICY.keep_daily + 2


def check(backup: ContinuousBackup) -> None:
    data_bytes = backup.copied_bytes
    stored = backup.storage.stored_bytes + backup.holds_storage.stored_bytes
    written = backup.written_bytes
    names = backup.storage.contents
    live = backup.catalog.numbers()
    objects = len(backup.storage.segments)
    rounds_kept = 2 * 10 * 30
    most_read = max(backup.manifests_read(number) for number in live)
    print(
        f"rounds {backup.rounds}, data {data_bytes / 1e6:.0f} MB, manifests stored {stored / 1e6:.2f} MB "
        f"({stored / data_bytes:.3%}), written {written / 1e6:.1f} MB ({written / data_bytes:.3%}, "
        f"{written / backup.rounds:.0f} bytes a round), "
        f"manifests {len(live)}, marks {len(backup.catalog.marks())}, ranges {len(backup.catalog.pruned_ranges())}, "
        f"segments {objects}, merged {backup.merged_bytes / data_bytes:.2f} times the data, "
        f"read for the newest {backup.manifests_read()}, for another at most {most_read}",
        flush=True,
    )
    day_bytes = backup.copied_bytes // backup.rounds * (DAY_S // 2)
    assert stored < day_bytes / 100, "what is kept does not grow with the rounds"
    assert written < data_bytes / 12
    assert most_read < 100
    assert len(live) <= MOST_MANIFESTS
    assert len(backup.catalog.marks()) <= MARK_AGE_MS // 2000 + rounds_kept
    assert len(backup.catalog.pruned_ranges()) <= len(live) + 1
    assert objects < len(backup.partitions) * (rounds_kept + 1000 + data_bytes // POLICY.compact_below_bytes)
    assert backup.holds_storage.contents == {}
    assert {each for name in names if (each := checkpoint_number(name))} <= set(live)
    assert all(manifest_number(n) or checkpoint_number(n) or pruned_range(n) or is_layer_name(n) for n in names)
    inventory = take_inventory(backup.catalog)
    assert inventory is not None
    assert inventory.damages == []
    backup.assert_whole()


@pytest.mark.timeout(7200)
def test_a_week_of_two_second_rounds_costs_less_than_a_hundredth_of_the_data() -> None:
    """An hour and a half of it unless QUORATE_HEAVY is set: until marks of pruned manifests are put together."""
    backup = ContinuousBackup(partitions=2, segment_bytes=32 * 1024)
    written = []
    for _ in range(7 if IS_HEAVY else 1):
        before = backup.written_bytes
        backup.run(DAY_S if IS_HEAVY else 5400)
        written.append(backup.written_bytes - before)
        check(backup)
        assert written[-1] <= 1.1 * written[0], "what is written in a day does not grow"


def test_what_a_round_writes_does_not_grow_with_what_the_backup_holds() -> None:
    """The segments of half a day, of a day and of two weeks."""

    def written(segments: int) -> int:
        backup = ContinuousBackup(partitions=2, segment_bytes=32 * 1024)
        backup.begin_with(segments)
        backup.run(HOUR_S // 3)  # Until all that it needs has been told once.
        before = backup.written_bytes
        backup.run(HOUR_S // 3)
        assert backup.manifests_read() < 100
        return backup.written_bytes - before

    ages = [written(segments) for segments in (75, 150, 2000)]
    assert max(ages) <= 1.1 * min(ages)


def test_what_is_written_does_not_grow_with_what_compactions_have_left() -> None:
    """A week on a small scale: rounds of many objects, each of which begins a layer, and compactions to one object."""
    unattended = MaintenancePolicy(interval_ms=None)
    written: list[int] = []
    most_layers = 0
    with patch.multiple(document, MIN_LAYERED_BYTES=4096, MAX_DELTAS=0):
        backup = ContinuousBackup(partitions=1, segment_bytes=256 * 1024, segments_per_round=12, policy=unattended)
        for _ in range(150):
            before = backup.written_bytes
            backup.run(5 * 2)
            backup.compact()
            written.append(backup.written_bytes - before)
            newest = backup.catalog.latest()
            assert newest is not None
            sizes = [layer.size_bytes for layer in newest.layers]
            assert all(lower >= 4 * upper for lower, upper in pairwise(sizes))
            most_layers = max(most_layers, len(sizes))

    thirds = [sum(written[start : start + 50]) for start in range(0, 150, 50)]
    assert max(thirds) <= 1.1 * thirds[0]
    assert 3 <= most_layers <= 5


def test_without_maintenance_it_would_grow_with_every_round() -> None:
    backup = ContinuousBackup(partitions=2, segment_bytes=32 * 1024, policy=MaintenancePolicy(interval_ms=None))

    backup.run(HOUR_S // 4)

    assert backup.maintained == []
    assert len(backup.catalog.numbers()) == len(backup.storage.segments) // 2 == 450


def test_the_days_before_stay_one_by_one_and_what_a_restore_or_a_hold_needs_stays() -> None:
    """Rounds of three hours: forty days take as many of them as eleven minutes of two-second ones."""
    backup = ContinuousBackup(partitions=1, segment_bytes=500_000)
    backup.run(DAY_S, round_seconds=3 * HOUR_S)
    held = backup.catalog.numbers()[0]
    backup.holds.hold(backup.catalog, held, Hold(since_ms=1))
    backup.run(40 * DAY_S, round_seconds=3 * HOUR_S)

    kept = [backup.catalog.read(number) for number in backup.catalog.numbers()]
    days = {manifest.captured_ms // (DAY_S * 1000) for manifest in kept if manifest.number != held}
    assert held in {manifest.number for manifest in kept}
    assert len(days) == POLICY.keep_daily
    assert len(kept) <= POLICY.keep_daily + POLICY.keep_hourly + 4
    backup.assert_whole()


def test_a_segment_is_written_a_few_times_and_not_with_every_maintenance() -> None:
    backup = ContinuousBackup(partitions=1, segment_bytes=4 * 1024)

    backup.run(3 * HOUR_S, round_seconds=10)

    assert sum(done.merged for done in backup.maintained) > 1000
    assert backup.merged_bytes < 8 * backup.copied_bytes
    newest = backup.catalog.latest()
    assert newest is not None
    assert len(newest.topics[0].partitions[0].segments) < 100
    assert plan_merges(newest, min_segment_bytes=1 << 30, max_segment_bytes=1 << 40, fan_in=1000) == []
