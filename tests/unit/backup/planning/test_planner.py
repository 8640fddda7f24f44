"""The planner: what to copy, in which pieces, and what cannot be copied any more."""

from collections import defaultdict
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.backup.manifests.manifest import (
    FORMAT_VERSION,
    Gap,
    GapReason,
    Isolation,
    Manifest,
    Mode,
    PartitionEntry,
    RunSettings,
    SegmentEntry,
    TopicEntry,
)
from quorate.backup.planning.cluster_snapshot import (
    ClusterSnapshot,
    PartitionSnapshot,
    TopicSelection,
    TopicSnapshot,
)
from quorate.backup.planning.planner import PartitionPlan, Plan, PlannerSettings, plan_run
from quorate.backup.segments.layout import EpochStart
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName
from tests.unit.backup.batches import TOPIC, TOPIC_ID

MIB = 1024 * 1024
ALL = TopicSelection()


def partition_snapshot(
    start: int = 0,
    end: int = 100,
    *,
    index: int = 0,
    leader: int = 1,
    log_bytes: int | None = None,
    local_start: int = 0,
    high_watermark: int | None = None,
    epoch_end: tuple[int, int] | None = None,
    error: str | None = None,
) -> PartitionSnapshot:
    return PartitionSnapshot(
        partition=PartitionIndex(index),
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(3),
        log_start_offset=Offset(start),
        end_offset=Offset(end),
        high_watermark=None if high_watermark is None else Offset(high_watermark),
        log_bytes=log_bytes,
        local_log_start_offset=Offset(local_start),
        epoch_end=None
        if epoch_end is None
        else EpochEnd(leader_epoch=LeaderEpoch(epoch_end[0]), end_offset=Offset(epoch_end[1])),
        error=error,
    )


def topic(*partitions: PartitionSnapshot, name: str = TOPIC, topic_id: TopicId = TOPIC_ID) -> TopicSnapshot:
    return TopicSnapshot(name=TopicName(name), topic_id=topic_id, partitions=partitions)


def cluster(*topics: TopicSnapshot) -> ClusterSnapshot:
    return ClusterSnapshot(cluster_id="cluster-a", captured_ms=1, topics=topics)


def segment(start: int, end: int) -> SegmentEntry:
    return SegmentEntry(
        name=f"s{start}",
        size_bytes=1,
        sha256="",
        start_offset=Offset(start),
        end_offset=Offset(end),
        first_offset=Offset(start),
        last_offset=Offset(end - 1),
        min_timestamp=None,
        max_timestamp=None,
        batch_count=1,
        record_count=1,
        batch_bytes=1,
        largest_batch_bytes=1,
    )


def manifest_of(*partitions: PartitionEntry, topic_id: TopicId = TOPIC_ID, generation: int = 1) -> Manifest:
    return Manifest(
        format_version=FORMAT_VERSION,
        number=4,
        backup_id="b",
        cluster_id="cluster-a",
        run_id="r",
        created_ms=0,
        captured_ms=0,
        settings=RunSettings(mode=Mode.INCREMENTAL, isolation=Isolation.READ_COMMITTED, compression="none"),
        topics=[
            TopicEntry(
                name=TOPIC,
                topic_id=topic_id,
                generation=generation,
                partition_count=len(partitions),
                partitions=list(partitions),
            )
        ],
    )


def copied(start: int, end: int, *epochs: tuple[int, int], index: int = 0) -> PartitionEntry:
    return PartitionEntry(
        partition=PartitionIndex(index),
        start_offset=Offset(start),
        end_offset=Offset(end),
        captured_start_offset=Offset(start),
        captured_end_offset=Offset(end),
        segments=[segment(start, end)] if end > start else [],
        leader_epochs=[EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs],
    )


def incremental(snapshot: PartitionSnapshot, entry: PartitionEntry) -> PartitionPlan:
    plan = plan_run(cluster(topic(snapshot)), manifest_of(entry), ALL, Mode.INCREMENTAL)
    return plan.topics[0].partitions[0]


def spans(plan: Plan) -> dict[tuple[str, int], list[tuple[int, int]]]:
    found = defaultdict(list)
    for task in plan.tasks:
        for each in task.ranges:
            found[each.topic, each.partition].append((int(each.start_offset), int(each.end_offset)))
    return {key: sorted(value) for key, value in found.items()}


@st.composite
def clusters(draw: st.DrawFn) -> ClusterSnapshot:
    topics = []
    for number in range(draw(st.integers(0, 4))):
        partitions = []
        for index in range(draw(st.integers(1, 5))):
            start = draw(st.integers(0, 10_000))
            partitions.append(
                partition_snapshot(
                    start,
                    start + draw(st.one_of(st.just(0), st.integers(0, 50), st.integers(0, 1_000_000))),
                    index=index,
                    leader=draw(st.sampled_from([1, 5, 102])),
                    log_bytes=draw(st.one_of(st.none(), st.integers(0, 2_000 * MIB))),
                )
            )
        topics.append(topic(*partitions, name=f"topic-{number}", topic_id=TopicId(UUID(int=number + 1))))
    return cluster(*topics)


@settings(max_examples=150, deadline=None)
@given(clusters(), st.integers(40 * MIB, 300 * MIB), st.integers(1, 20))
def test_the_ranges_of_a_plan_cover_every_selected_offset_exactly_once(
    snapshot: ClusterSnapshot, range_bytes: int, ranges_per_task: int
) -> None:
    selection = TopicSelection(include=("topic-*",), exclude=("topic-1",))
    limits = PlannerSettings(range_bytes=range_bytes, ranges_per_task=ranges_per_task)

    plan = plan_run(snapshot, None, selection, Mode.SNAPSHOT, limits)

    found = spans(plan)
    expected = {
        (each.name, partition.partition): (partition.log_start_offset, partition.end_offset)
        for each in snapshot.topics
        for partition in each.partitions
        if each.name != "topic-1" and partition.end_offset > partition.log_start_offset
    }
    assert found.keys() == expected.keys()
    for key, (start, end) in expected.items():
        assert found[key][0][0] == start
        assert found[key][-1][1] == end
        assert all(low < high for low, high in found[key])
        assert all(before[1] == after[0] for before, after in zip(found[key], found[key][1:], strict=False))
    assert all(1 <= len(task.ranges) <= ranges_per_task for task in plan.tasks)


@settings(max_examples=50, deadline=None)
@given(clusters())
def test_first_and_last_range_of_a_partition_are_marked(snapshot: ClusterSnapshot) -> None:
    plan = plan_run(snapshot, None, ALL, Mode.SNAPSHOT, PlannerSettings(range_bytes=50 * MIB))

    for each in plan.topics:
        for partition in each.partitions:
            count = len(partition.ranges)
            assert [part.is_first for part in partition.ranges] == [index == 0 for index in range(count)]
            assert [part.is_last for part in partition.ranges] == [index == count - 1 for index in range(count)]


@pytest.mark.parametrize(("log_mib", "count"), [(1, 1), (127, 1), (255, 1), (256, 2), (1280, 10)])
def test_a_large_partition_is_split_into_ranges_of_128_to_256_mib(log_mib: int, count: int) -> None:
    plan = plan_run(cluster(topic(partition_snapshot(end=10_000, log_bytes=log_mib * MIB))), None, ALL, Mode.SNAPSHOT)

    assert len(plan.topics[0].partitions[0].ranges) == count


@pytest.mark.parametrize(
    ("local_start", "log_mib", "estimated_mib"), [(9_000, 128, 1280), (9_999, 1, 10_000), (10_000, 0, 10)]
)
def test_offsets_in_tiered_storage_are_estimated_by_those_on_the_leaders_disk(
    local_start: int, log_mib: int, estimated_mib: int
) -> None:
    """DescribeLogDirs tells the size of the local log alone; where that has no record, a record counts as 1 KiB."""
    snapshot = partition_snapshot(end=10_000, log_bytes=log_mib * MIB, local_start=local_start)

    plan = plan_run(cluster(topic(snapshot)), None, ALL, Mode.SNAPSHOT)

    assert plan.estimated_bytes == pytest.approx(estimated_mib * MIB, rel=0.03)


def test_only_the_part_that_is_new_is_estimated() -> None:
    entry = copied(0, 9_000)

    found = incremental(partition_snapshot(end=10_000, log_bytes=1000 * MIB), entry)

    assert [(each.start_offset, each.end_offset) for each in found.ranges] == [(9_000, 10_000)]
    assert found.ranges[0].estimated_bytes == 100 * MIB


def test_three_thousand_idle_partitions_make_few_tasks_one_leader_each() -> None:
    topics = [
        topic(
            *(partition_snapshot(end=index % 3, index=index, leader=index % 3, log_bytes=300) for index in range(12)),
            name=f"topic-{number}",
            topic_id=TopicId(UUID(int=number + 1)),
        )
        for number in range(250)
    ]

    plan = plan_run(cluster(*topics), None, ALL, Mode.SNAPSHOT)

    assert len(plan.tasks) <= 9
    assert all(len({each.leader for each in task.ranges}) == 1 for task in plan.tasks)
    assert sum(len(each.partitions) for each in plan.topics) == 3_000


def test_nothing_to_do_gives_no_task_and_the_partition_is_still_known() -> None:
    plan = plan_run(cluster(topic(partition_snapshot(0, 0))), None, ALL, Mode.SNAPSHOT)

    assert plan.tasks == []
    assert len(plan.topics[0].partitions) == 1


def test_largest_tasks_come_first() -> None:
    snapshot = cluster(
        topic(
            partition_snapshot(end=10, index=0, log_bytes=MIB),
            partition_snapshot(end=1_000, index=1, log_bytes=200 * MIB),
            partition_snapshot(end=1_000, index=2, log_bytes=500 * MIB),
        )
    )

    sizes = [task.estimated_bytes for task in plan_run(snapshot, None, ALL, Mode.SNAPSHOT).tasks]

    assert sizes == sorted(sizes, reverse=True)


def test_incremental_goes_on_where_the_last_manifest_ended() -> None:
    found = incremental(partition_snapshot(end=150), copied(0, 100))

    assert (found.start_offset, found.end_offset, found.gap) == (100, 150, None)


def test_snapshot_copies_everything_again() -> None:
    plan = plan_run(cluster(topic(partition_snapshot(end=150))), manifest_of(copied(0, 100)), ALL, Mode.SNAPSHOT)

    assert plan.starts_afresh
    assert spans(plan) == {(TOPIC, 0): [(0, 150)]}


def test_what_retention_deleted_before_it_was_copied_is_a_gap() -> None:
    found = incremental(partition_snapshot(start=130, end=150), copied(0, 100))

    assert found.gap == Gap(
        start_offset=Offset(100),
        end_offset=Offset(130),
        reason=GapReason.RETENTION,
        detail="deleted by the cluster before this run",
    )
    assert found.start_offset == 130


def test_retention_up_to_the_copied_end_is_no_gap() -> None:
    assert incremental(partition_snapshot(start=100, end=150), copied(0, 100)).gap is None


def test_a_partition_added_in_the_middle_begins_at_its_own_start() -> None:
    snapshot = topic(partition_snapshot(end=150), partition_snapshot(start=7, end=9, index=1))

    plan = plan_run(cluster(snapshot), manifest_of(copied(0, 100)), ALL, Mode.INCREMENTAL)

    assert spans(plan) == {(TOPIC, 0): [(100, 150)], (TOPIC, 1): [(7, 9)]}
    assert plan.topics[0].partition_count == 2
    assert plan.topics[0].partitions[1].previous_end_offset is None


def test_a_topic_that_was_created_anew_is_a_new_generation_from_its_start() -> None:
    other = TopicId(UUID(int=99))

    plan = plan_run(
        cluster(topic(partition_snapshot(end=150))),
        manifest_of(copied(0, 100), topic_id=other, generation=3),
        ALL,
        Mode.INCREMENTAL,
    )

    assert (plan.topics[0].generation, plan.topics[0].topic_id) == (4, TOPIC_ID)
    assert spans(plan) == {(TOPIC, 0): [(0, 150)]}


def test_truncation_is_found_by_the_end_of_the_last_copied_epoch() -> None:
    found = incremental(partition_snapshot(end=150, epoch_end=(5, 80)), copied(0, 100, (5, 0)))

    assert (found.superseded_from_offset, found.start_offset) == (80, 80)


def test_an_epoch_that_the_cluster_never_kept_is_superseded_from_its_first_offset() -> None:
    entry = copied(0, 100, (3, 0), (5, 60), (6, 90))

    found = incremental(partition_snapshot(end=150, epoch_end=(3, 120)), entry)

    assert found.superseded_from_offset == 60


@pytest.mark.parametrize("epoch_end", [(5, 100), (5, 140)])
def test_a_log_that_only_grew_is_not_taken_for_truncated(epoch_end: tuple[int, int]) -> None:
    found = incremental(
        partition_snapshot(end=150, high_watermark=90, epoch_end=epoch_end), copied(0, 100, (3, 0), (5, 60))
    )

    assert found.superseded_from_offset is None


@pytest.mark.parametrize("epochs", [[], [(5, 0)]])
def test_a_log_that_became_shorter_is_truncated_also_where_no_epochs_are_known(epochs: list[tuple[int, int]]) -> None:
    found = incremental(partition_snapshot(end=70, high_watermark=70, epoch_end=(-1, -1)), copied(0, 100, *epochs))

    assert (found.superseded_from_offset, found.ranges) == (70, [])


def test_a_last_stable_offset_behind_the_copied_end_is_no_truncation() -> None:
    """The run before may have copied up to the high watermark; a transaction that hangs holds this one back."""
    found = incremental(partition_snapshot(end=70, high_watermark=160), copied(0, 100))

    assert (found.superseded_from_offset, found.ranges, found.start_offset) == (None, [], 100)


def test_truncation_below_the_log_start_leaves_a_gap() -> None:
    found = incremental(partition_snapshot(start=90, end=150, epoch_end=(5, 80)), copied(0, 100, (5, 0)))

    assert (found.superseded_from_offset, found.start_offset) == (80, 90)
    assert found.gap is not None
    assert (found.gap.start_offset, found.gap.end_offset) == (80, 90)


def test_what_the_cluster_does_not_tell_is_a_failure_and_not_an_empty_partition() -> None:
    snapshot = topic(partition_snapshot(end=10), partition_snapshot(index=1, error="no leader"))
    denied = TopicSnapshot(name=TopicName("secret"), topic_id=TopicId(UUID(int=5)), error="not authorized")

    plan = plan_run(cluster(snapshot, denied), None, ALL, Mode.SNAPSHOT)

    assert [(each.topic, each.partition, each.message) for each in plan.failures] == [
        (TOPIC, 1, "no leader"),
        ("secret", None, "not authorized"),
    ]
    assert [each.partition for each in plan.topics[0].partitions] == [0]
    assert plan.topics[0].partition_count == 2


def test_a_topic_that_is_named_and_does_not_exist_is_a_failure() -> None:
    selection = TopicSelection(include=("payments", "or*"))

    plan = plan_run(cluster(topic(partition_snapshot())), None, selection, Mode.SNAPSHOT)

    assert [each.message for each in plan.failures] == ["topic payments does not exist"]


@pytest.mark.parametrize(
    ("name", "is_internal", "selected"),
    [
        ("orders-eu", False, True),
        ("orders-eu-tmp", False, False),
        ("payments", False, True),
        ("payments2", False, False),
        ("ORDERS-eu", False, False),
        ("__consumer_offsets", True, True),
        ("orders-internal", True, False),
    ],
)
def test_exclude_wins_over_include_and_a_star_means_no_internal_topic(
    name: str, is_internal: bool, selected: bool
) -> None:
    selection = TopicSelection(include=("orders-*", "payments", "__consumer_offsets"), exclude=("*-tmp",))

    assert selection.selects(name, is_internal=is_internal) is selected
