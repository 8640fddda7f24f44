"""Segments in the storage: when one ends and the next begins, and what is left when a copy is given up."""

from collections.abc import Callable

import pytest

from quorate.backup.errors import StorageError
from quorate.backup.manifests.manifest import AbortedTransactionEntry, GapReason
from quorate.backup.objects.storage import StoredObject
from quorate.backup.planning.ranges import OffsetRange, Placement
from quorate.backup.segments.layout import FrameCodec
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.backup.segments.verification import verify_deeply
from quorate.kernel.ids import Offset, ProducerId
from tests.unit.backup.batches import CLUSTER_ID, TOPIC_ID, batch, offset_range, summary_of
from tests.unit.backup.memory_storage import MemoryStorage


def copier_into(
    storage: MemoryStorage, each: OffsetRange, *, now_ms: Callable[[], int] = lambda: 0, **settings: int
) -> RangeCopier:
    return RangeCopier(
        storage,
        each,
        cluster_id=CLUSTER_ID,
        attempt="a1",
        settings=SegmentSettings(codec=FrameCodec.NONE, **settings),
        now_ms=now_ms,
    )


def test_a_segment_ends_before_it_would_grow_beyond_its_size() -> None:
    storage = MemoryStorage()
    copier = copier_into(storage, offset_range(0, 50), max_bytes=1_000)
    for index in range(10):
        data = batch(index * 5, 5)
        copier.record(data, summary_of(data))

    entries = copier.finish().segments

    assert len(entries) > 2
    assert [entry.start_offset for entry in entries][1:] == [entry.end_offset for entry in entries][:-1]
    assert (entries[0].start_offset, entries[-1].end_offset) == (0, 50)
    assert sorted(storage.contents) == [entry.name for entry in entries]
    for entry in entries:
        verify_deeply(StoredObject(storage, entry.name), entry)


def test_a_segment_ends_when_it_is_old_enough() -> None:
    now_ms = 0
    copier = copier_into(MemoryStorage(), offset_range(0, 40), now_ms=lambda: now_ms, max_age_ms=1_000)
    for index, now_ms in enumerate([5_000, 5_999, 6_000, 6_500]):  # noqa: B007 - the copier reads it
        data = batch(index * 10, 10)
        copier.record(data, summary_of(data))

    assert [(each.start_offset, each.end_offset) for each in copier.finish().segments] == [(0, 20), (20, 40)]


def test_a_batch_larger_than_a_segment_may_be_has_one_of_its_own() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 3), max_bytes=1_000)
    for index in range(3):
        data = batch(index, value_bytes=3_000)
        copier.record(data, summary_of(data))

    assert [each.batch_count for each in copier.finish().segments] == [1, 1, 1]


def test_objects_are_named_after_topic_id_partition_base_offset_and_attempt() -> None:
    storage = MemoryStorage()
    copier = copier_into(storage, offset_range(42, 50))
    copier.record(batch(45), summary_of(batch(45)))
    copier.finish()

    assert list(storage.contents) == [f"topics/orders~{TOPIC_ID}/0/00000000000000000042-a1.qseg"]


def test_a_range_without_batches_leaves_no_object() -> None:
    storage = MemoryStorage()

    assert copier_into(storage, offset_range(0, 50)).finish().segments == []
    assert storage.calls == 0


def test_a_copy_that_is_given_up_leaves_no_half_object() -> None:
    storage = MemoryStorage()
    copier = copier_into(storage, offset_range(0, 50))
    copier.record(batch(0), summary_of(batch(0)))

    copier.abort()
    copier.abort()

    assert (storage.contents, storage.open_uploads) == ({}, 0)


def test_an_upload_that_fails_at_its_end_is_aborted_and_not_named() -> None:
    storage = MemoryStorage(fails_at=3)
    copier = copier_into(storage, offset_range(0, 1))
    copier.record(batch(0), summary_of(batch(0)))

    with pytest.raises(StorageError):
        copier.finish()
    copier.abort()

    assert (storage.contents, storage.open_uploads) == ({}, 0)


def test_a_copier_takes_its_own_batches_and_knows_when_it_is_done() -> None:
    copier = copier_into(MemoryStorage(), offset_range(10, 20, is_first=False, is_last=False))

    placements = []
    for data in (batch(5, 8), batch(13, 4), batch(17, 6), batch(23, 2)):
        placements.append(copier.record(data, summary_of(data)))
        if copier.is_done:
            break
    result = copier.finish()

    assert placements == [Placement.BEFORE, Placement.INSIDE, Placement.INSIDE]
    assert (copier.next_offset, copier.record_count) == (23, 10)
    assert (result.reached_offset, result.failure) == (20, None)
    assert [(each.start_offset, each.end_offset, each.last_offset) for each in result.segments] == [(10, 20, 22)]


def test_a_batch_that_reaches_beyond_the_captured_end_is_left_to_the_next_run() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 20))
    copier.record(batch(0, 15), summary_of(batch(0, 15)))
    copier.record(batch(15, 10), summary_of(batch(15, 10)))

    result = copier.finish()

    assert copier.is_done
    assert (result.reached_offset, result.segments[-1].end_offset) == (15, 15)


def test_what_is_skipped_becomes_a_gap_between_segments() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 50))
    copier.record(batch(0, 10), summary_of(batch(0, 10)))
    copier.skip_to(Offset(25), GapReason.RETENTION)
    copier.record(batch(22, 8), summary_of(batch(22, 8)))
    copier.skip_to(Offset(70), GapReason.UNREADABLE, "CRC")

    result = copier.finish()

    assert [(each.start_offset, each.end_offset) for each in result.segments] == [(0, 10), (25, 30)]
    assert [(each.start_offset, each.end_offset, each.reason) for each in result.gaps] == [
        (10, 25, GapReason.RETENTION),
        (30, 50, GapReason.UNREADABLE),
    ]
    assert copier.is_done
    assert result.reached_offset == 50


def test_two_gaps_in_a_row_leave_no_hole() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 50))
    copier.skip_to(Offset(10), GapReason.RETENTION)
    copier.skip_to(Offset(10), GapReason.RETENTION)
    copier.skip_to(Offset(30), GapReason.UNREADABLE)

    result = copier.finish()

    assert [(each.start_offset, each.end_offset, each.reason.value) for each in result.gaps] == [
        (0, 10, "retention"),
        (10, 30, "unreadable"),
        (30, 50, "empty"),
    ]


def test_a_failure_keeps_what_was_copied_so_far() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 50))
    copier.record(batch(0, 10), summary_of(batch(0, 10)))

    result = copier.finish("the broker went away")

    assert (result.reached_offset, result.failure) == (10, "the broker went away")
    assert [(each.start_offset, each.end_offset) for each in result.segments] == [(0, 10)]


def test_aborted_transactions_are_named_once() -> None:
    copier = copier_into(MemoryStorage(), offset_range(0, 50))
    for _ in range(2):
        copier.note_aborted(
            [AbortedTransactionEntry(Offset(7), ProducerId(3)), AbortedTransactionEntry(Offset(2), ProducerId(9))]
        )

    assert [each.first_offset for each in copier.finish().aborted_transactions] == [2, 7]
