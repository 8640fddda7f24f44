"""Compactions: the same batches in fewer objects, and nothing else that a manifest says is touched."""

import itertools
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.errors import BackupError, DamagedSegment
from quorate.backup.manifests.manifest import Manifest, PartitionEntry
from quorate.backup.objects.storage import StoredObject
from quorate.backup.retention.compaction import Merge, compacted, merge_segments, plan_merges
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.segments.reader import SegmentReader
from quorate.backup.segments.verification import verify_deeply
from quorate.kernel.ids import Offset
from tests.unit.backup.backup_runs import partition_entry, read_back
from tests.unit.backup.retained_backups import Killed, RetainedBackup
from tests.unit.backup.test_backup_runs import CHANGES, apply


def grown(runs: int = 4) -> RetainedBackup:
    backup = RetainedBackup()
    backup.grow(runs)
    return backup


def entry_of(manifest: Manifest | None) -> PartitionEntry:
    entry = partition_entry(manifest)
    assert entry is not None
    return entry


def test_small_segments_become_one_with_the_same_batches() -> None:
    backup = grown()
    before = backup.manifests()[4]

    after = backup.compact()

    assert after is not None
    assert (after.number, after.compacted_from, after.captured_ms) == (5, 4, before.captured_ms)
    assert (len(entry_of(before).segments), len(entry_of(after).segments)) == (4, 1)
    assert read_back(backup.storage, after) == read_back(backup.storage, before)
    assert read_back(backup.storage, before), "older manifests can still be read"


def test_run_again_it_finds_nothing_to_merge() -> None:
    backup = grown()
    backup.compact()

    assert backup.compact() is None
    assert list(backup.manifests()) == [1, 2, 3, 4, 5]


def test_the_next_increment_follows_a_compaction() -> None:
    backup = grown()
    backup.compact()
    backup.grow(1)

    assert read_back(backup.storage, backup.manifests()[6]) == [data for _, data in backup.log.batches]


def test_no_merged_segment_is_larger_than_the_maximum_and_large_ones_stay() -> None:
    backup = grown(9)
    manifest = backup.manifests()[9]
    sizes = [segment.size_bytes for segment in entry_of(manifest).segments]

    groups = plan_merges(manifest, min_segment_bytes=max(sizes) + 1, max_segment_bytes=2 * max(sizes))

    assert [len(group.segments) for group in groups] == [2, 2, 2, 2]
    assert plan_merges(manifest, min_segment_bytes=min(sizes), max_segment_bytes=2 * max(sizes)) == []


def test_a_gap_or_a_truncation_between_two_segments_keeps_them_apart() -> None:
    backup = RetainedBackup()
    backup.grow(1)
    backup.log.append(5)
    backup.log.delete_records(8)
    backup.grow(1)
    backup.log.append(5)
    backup.back_up()
    backup.log.elect_unclean(13)
    backup.grow(2)
    manifest = max(backup.manifests().values(), key=lambda each: each.number)
    entry = entry_of(manifest)
    assert entry.gaps
    assert entry.superseded

    after = backup.compact()

    assert after is not None
    found = entry_of(after)
    assert len(found.segments) < len(entry.segments)
    assert msgspec.structs.replace(found, segments=[]) == msgspec.structs.replace(entry, segments=[])
    assert read_back(backup.storage, after) == read_back(backup.storage, manifest)


def test_the_index_of_a_merged_segment_finds_offsets_and_times() -> None:
    backup = grown(6)
    after = backup.compact()
    (segment,) = entry_of(after).segments
    reader = SegmentReader(StoredObject(backup.storage, segment.name))

    assert [batch.summary.base_offset for batch in reader.batches(from_offset=Offset(7))] == [6, 9, 12, 15]
    assert [batch.summary.base_offset for batch in reader.batches(from_timestamp=5_000)] == [12, 15]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.one_of(CHANGES, CHANGES, st.tuples(st.just("backup"), st.just(0), st.just(0))), max_size=25),
    st.integers(100, 5_000),
)
def test_whatever_a_log_went_through_it_reads_the_same_and_verifies_deeply(
    operations: list[tuple[str, int, int]], min_segment_bytes: int
) -> None:
    backup = RetainedBackup()
    for operation, value, gap in [*operations, ("backup", 0, 0)]:
        if operation == "backup":
            backup.back_up()
        else:
            apply(backup.log, operation, value, gap)
    before = max(backup.manifests().values(), key=lambda each: each.number)

    after = backup.compact(min_segment_bytes)

    if after is not None:
        assert read_back(backup.storage, after) == read_back(backup.storage, before)
        for segment in after.segments():
            verify_deeply(StoredObject(backup.storage, segment.name), segment)
        assert _without_segments(after) == _without_segments(before)


def _without_segments(manifest: Manifest) -> list[PartitionEntry]:
    partitions = [partition for topic in manifest.topics for partition in topic.partitions]
    return [msgspec.structs.replace(partition, segments=[]) for partition in partitions]


def test_damage_is_told_and_never_copied_into_a_sound_object() -> None:
    backup = grown()
    manifest = backup.manifests()[4]
    (group,) = plan_merges(manifest, min_segment_bytes=100_000, max_segment_bytes=200_000)
    damaged = group.segments[2].name
    content = bytearray(backup.storage.contents[damaged])
    for position in range(0, len(content), 7):
        changed = bytearray(content)
        changed[position] ^= 1
        backup.storage.contents[damaged] = bytes(changed)
        with pytest.raises(DamagedSegment):
            merge_segments(backup.storage, group, cluster_id="c", codec=FrameCodec.ZSTD, attempt="one")
    assert not any("-one" in name for name in backup.storage.contents)
    assert backup.storage.open_uploads == 0


@pytest.mark.parametrize("is_late", [False, True])
def test_killed_at_any_call_the_backup_is_whole_and_the_next_compaction_does_it(is_late: bool) -> None:
    for call in itertools.count(1):
        backup = grown()
        backup.calls.kill_at(call, is_late=is_late)
        try:
            backup.compact()
        except Killed:
            backup.calls.revive()
        else:
            assert call > 10
            return
        backup.assert_whole()
        backup.compact()
        backup.assert_whole()
        newest = max(backup.manifests().values(), key=lambda each: each.number)
        assert len(entry_of(newest).segments) == 1
        assert read_back(backup.storage, newest) == [data for _, data in backup.log.batches]


def truncate(backup: RetainedBackup) -> None:
    backup.log.elect_unclean(7)
    backup.back_up()


EVENTS: dict[str, Callable[[RetainedBackup], object]] = {
    "a compaction": lambda backup: backup.compact(),
    "a backup": lambda backup: backup.grow(1),
    "a truncation": truncate,
}


@pytest.mark.parametrize("event", EVENTS)
def test_merges_are_put_on_top_of_what_was_committed_meanwhile(event: str) -> None:
    backup = grown()
    manifest = backup.manifests()[4]
    (group,) = plan_merges(manifest, min_segment_bytes=100_000, max_segment_bytes=200_000)
    merged = merge_segments(backup.storage, group, cluster_id="c", codec=FrameCodec.NONE, attempt="one")
    EVENTS[event](backup)
    newest, number = backup.catalog.head()
    assert newest is not None

    after, taken = compacted(newest, [Merge(group=group, merged=merged)], number=number, run_id="late", created_ms=1)

    assert bool(taken) == (event == "a backup")
    assert read_back(backup.storage, after) == read_back(backup.storage, newest)


def test_after_a_compaction_a_prune_frees_the_small_segments() -> None:
    backup = grown()
    small = {name for name in backup.storage.contents if name.startswith("topics/")}
    after = backup.compact()
    assert after is not None

    report = backup.prune(keep_last=1)

    assert report.pruned == [1, 2, 3, 4]
    assert report.objects == len(small)
    assert {name for name in backup.storage.contents if name.startswith("topics/")} == after.object_names()


def test_a_compaction_does_not_count_among_the_last_manifests() -> None:
    backup = grown(3)
    backup.compact()
    backup.grow(1)

    report = backup.prune(keep_last=3)

    assert report.pruned == [1, 3]  # Manifest 4 says what 3 said.
    assert [verdict.number for verdict in report.kept] == [2, 4, 5]


def test_a_merge_that_lost_its_sources_is_a_sentence() -> None:
    backup = grown()
    manifest = backup.manifests()[4]
    (group,) = plan_merges(manifest, min_segment_bytes=100_000, max_segment_bytes=200_000)
    del backup.storage.contents[group.segments[1].name]

    with pytest.raises(BackupError, match="does not exist"):
        merge_segments(backup.storage, group, cluster_id="c", codec=FrameCodec.NONE, attempt="one")
