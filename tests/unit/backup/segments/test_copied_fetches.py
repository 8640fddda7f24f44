"""What each fetched batch and each failure means for a range; segments go to a folder."""

from pathlib import Path
from uuid import UUID

import pytest

from quorate.backup.manifests.manifest import Gap, GapReason
from quorate.backup.manifests.merging import RangeResult
from quorate.backup.objects.names import partition_folder, segment_name
from quorate.backup.objects.opening import open_storage
from quorate.backup.objects.storage import ObjectStorage, StorageLocation
from quorate.backup.planning.ranges import OffsetRange
from quorate.backup.segments.range_copier import RangeCopier, SegmentSettings
from quorate.client.errors import OffsetOutOfRange, PartitionUnavailable
from quorate.client.fetch.batches import AbortedProducer, FetchedBatches, RangeFailed, walk_batches
from quorate.kernel.ids import (
    LeaderEpoch,
    NodeId,
    Offset,
    PartitionIndex,
    ProducerId,
    TopicId,
    TopicName,
    TopicPartition,
)
from quorate.records.builder import build_batch
from quorate.records.record import Record

TOPIC = TopicName("orders")
PARTITION = TopicPartition(TOPIC, PartitionIndex(0))


@pytest.fixture
def storage(tmp_path: Path) -> ObjectStorage:
    return open_storage(StorageLocation(f"file://{tmp_path}"))


def offset_range(start: int, end: int, *, is_first: bool = True, is_last: bool = True) -> OffsetRange:
    return OffsetRange(
        topic=TOPIC,
        topic_id=TopicId(UUID(int=7)),
        generation=1,
        partition=PartitionIndex(0),
        leader=NodeId(7),
        leader_epoch=LeaderEpoch(3),
        start_offset=Offset(start),
        end_offset=Offset(end),
        is_first=is_first,
        is_last=is_last,
        estimated_bytes=0,
    )


def copy_of(storage: ObjectStorage, wanted: OffsetRange, max_bytes: int = 1024) -> RangeCopier:
    settings = SegmentSettings(max_bytes=max_bytes)
    return RangeCopier(storage, wanted, cluster_id="c", attempt="a1", settings=settings, now_ms=lambda: 0)


def batch(base: int, count: int) -> bytes:
    records = [Record(Offset(base + index), 1000, None, b"v") for index in range(count)]
    return bytes(build_batch(records, base_offset=Offset(base)))


def fetched(copy: RangeCopier, *batches: bytes, is_last: bool = False, aborted: tuple[int, ...] = ()) -> FetchedBatches:
    data = memoryview(b"".join(batches))
    walked = walk_batches(data)
    return FetchedBatches(
        range=copy.fetch_range,
        data=data,
        batch_count=len(walked),
        next_offset=Offset(walked[-1].last_offset + 1) if walked else copy.fetch_range.end_offset,
        high_watermark=Offset(1000),
        last_stable_offset=Offset(1000),
        log_start_offset=Offset(0),
        aborted_transactions=[AbortedProducer(ProducerId(5), Offset(offset)) for offset in aborted],
        node_id=NodeId(7),
        leader_epoch=LeaderEpoch(3),
        is_last=is_last,
    )


def below_log_start(copy: RangeCopier, at: int, log_start: int) -> RangeFailed:
    error = OffsetOutOfRange(PARTITION, Offset(at), Offset(log_start), Offset(1000))
    return RangeFailed(range=copy.fetch_range, next_offset=Offset(at), error=error)


def covered(result: RangeResult) -> list[tuple[int, int]]:
    segments = [(each.start_offset, each.end_offset) for each in result.segments]
    return sorted(segments + [(each.start_offset, each.end_offset) for each in result.gaps])


def finished(copy: RangeCopier) -> RangeResult:
    assert copy.result is not None
    return copy.result


def test_whole_range_is_one_segment_that_answers_for_every_offset(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 10))
    copy.take(fetched(copy, batch(0, 4)))
    copy.take(fetched(copy, batch(4, 3), is_last=True))  # Offsets 7 to 9 were compacted away.

    result = finished(copy)

    assert covered(result) == [(0, 10)]
    assert (result.reached_offset, result.failure, copy.record_count) == (10, None, 7)


def test_range_without_a_batch_is_an_empty_gap_and_leaves_no_object(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(5, 9))
    copy.take(fetched(copy, is_last=True))

    assert finished(copy).gaps == [Gap(start_offset=Offset(5), end_offset=Offset(9), reason=GapReason.EMPTY)]
    assert list(storage.objects()) == []


def test_batch_across_an_inner_border_belongs_to_the_range_of_its_first_offset(storage: ObjectStorage) -> None:
    across = batch(8, 4)
    before = copy_of(storage, offset_range(0, 10, is_last=False))
    before.take(fetched(before, batch(0, 8), across, is_last=True))
    behind = copy_of(storage, offset_range(10, 20, is_first=False))
    behind.take(fetched(behind, across, batch(12, 8), is_last=True))

    assert (before.record_count, behind.record_count) == (12, 8)
    assert covered(finished(before)) == [(0, 10)]
    assert covered(finished(behind)) == [(10, 20)]


def test_copy_does_not_overshoot_the_captured_end(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 10))
    copy.take(fetched(copy, batch(0, 8), batch(8, 4), is_last=True))

    assert (finished(copy).reached_offset, finished(copy).failure, copy.record_count) == (8, None, 8)
    assert covered(finished(copy)) == [(0, 8)]


def test_records_deleted_before_the_first_fetch_are_a_gap_and_the_copy_goes_on(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 10))
    copy.fail(below_log_start(copy, 0, 4))
    assert copy.result is None
    assert copy.fetch_range.start_offset == 4

    copy.take(fetched(copy, batch(2, 8), is_last=True))  # The log starts inside this batch.

    result = finished(copy)
    assert covered(result) == [(0, 4), (4, 10)]
    assert [gap.reason for gap in result.gaps] == [GapReason.RETENTION]
    assert result.key == offset_range(0, 10).key


def test_records_deleted_in_the_middle_of_a_copy_are_a_gap_between_segments(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 20))
    copy.take(fetched(copy, batch(0, 5)))
    copy.fail(below_log_start(copy, 5, 12))
    copy.take(fetched(copy, batch(12, 8), is_last=True))

    assert covered(finished(copy)) == [(0, 5), (5, 12), (12, 20)]


def test_everything_deleted_is_one_gap(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 20))
    copy.fail(below_log_start(copy, 0, 500))

    assert covered(finished(copy)) == [(0, 20)]
    assert finished(copy).failure is None


def test_failure_keeps_what_was_copied_and_says_why(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 20))
    copy.take(fetched(copy, batch(0, 5)))
    error = PartitionUnavailable(PARTITION, NodeId(7), None, "connection refused", 1000)
    copy.fail(RangeFailed(range=copy.fetch_range, next_offset=Offset(5), error=error))

    result = finished(copy)
    assert covered(result) == [(0, 5)]
    assert result.reached_offset == 5
    assert result.failure is not None
    assert "orders-0" in result.failure


def test_aborted_transactions_are_noted_once_and_in_order(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 10))
    copy.take(fetched(copy, batch(0, 5), aborted=(3, 1)))
    copy.take(fetched(copy, batch(5, 5), is_last=True, aborted=(3,)))

    assert [each.first_offset for each in finished(copy).aborted_transactions] == [1, 3]


def block_folder_of(storage: ObjectStorage, wanted: OffsetRange) -> str:
    """Something that is no folder is where the partition's segments should be."""
    folder = partition_folder(wanted.topic, wanted.topic_id, wanted.partition).removesuffix("/")
    storage.put_if_absent(folder, b"")
    return folder


def test_a_partition_whose_object_the_storage_refuses_fails_alone(storage: ObjectStorage) -> None:
    copy = copy_of(storage, offset_range(0, 10))
    folder = block_folder_of(storage, offset_range(0, 10))

    copy.take(fetched(copy, batch(0, 4)))
    copy.take(fetched(copy, batch(4, 6), is_last=True))

    result = finished(copy)
    assert (result.reached_offset, result.segments, result.gaps) == (0, [], [])
    assert result.failure is not None
    assert folder in result.failure
    copy.abort()


def test_what_is_in_whole_segments_counts_when_the_storage_refuses_the_next(storage: ObjectStorage) -> None:
    """A segment for every batch; where the second one should be is a folder."""
    wanted = offset_range(0, 12)
    copy = copy_of(storage, wanted, max_bytes=1)
    second = segment_name(wanted.topic, wanted.topic_id, wanted.partition, Offset(4), "a1")
    storage.put_if_absent(f"{second}/folder", b"")

    copy.take(fetched(copy, batch(0, 4), batch(5, 3)))
    copy.take(fetched(copy, batch(8, 4), is_last=True))

    result = finished(copy)
    assert covered(result) == [(0, 4)]
    assert result.reached_offset == 4
    assert result.failure is not None
    assert second in result.failure
    assert [each.name for each in storage.objects() if each.name.endswith(".partial")] == []
