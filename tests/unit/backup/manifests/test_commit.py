"""Updates and requirements: what the next manifest says, and when there must be none."""

from uuid import UUID

import msgspec
import pytest

from quorate.backup.errors import DamagedManifest, RequirementFailed
from quorate.backup.manifests.commit import (
    AppendRange,
    PartitionEndsAt,
    PreviousIs,
    PutFailures,
    PutGroups,
    PutPartition,
    PutTopic,
    StartAfresh,
    SupersedeTail,
    Update,
    commit,
)
from quorate.backup.manifests.document import decode_document
from quorate.backup.manifests.manifest import (
    AbortedTransactionEntry,
    Failure,
    Gap,
    GapReason,
    GroupEntry,
    GroupOffset,
    Manifest,
    PartitionEntry,
    SegmentEntry,
    encode_manifest,
)
from quorate.backup.objects.names import segment_name
from quorate.backup.segments.layout import EpochStart
from quorate.kernel.ids import LeaderEpoch, Offset, PartitionIndex, ProducerId, TopicId, TopicName
from tests.unit.backup.backup_runs import a_run
from tests.unit.backup.batches import PARTITION, TOPIC, TOPIC_ID

GROUP = GroupEntry(
    group="billing",
    captured_ms=5,
    offsets=[GroupOffset(topic=TOPIC, partition=PARTITION, offset=Offset(7), metadata="x")],
)


def put_topic(partition_count: int = 1, topic_id: TopicId = TOPIC_ID, generation: int = 1) -> PutTopic:
    return PutTopic(
        name=TOPIC,
        topic_id=topic_id,
        generation=generation,
        is_internal=False,
        partition_count=partition_count,
        configs={"cleanup.policy": "compact"},
    )


def put_partition(start: int = 0, captured_end: int = 100, index: int = 0) -> PutPartition:
    return PutPartition(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PartitionIndex(index),
        start_offset=Offset(start),
        captured_start_offset=Offset(start),
        captured_end_offset=Offset(captured_end),
        captured_leader_epoch=LeaderEpoch(2),
    )


def name_at(start: int) -> str:
    return segment_name(TOPIC, TOPIC_ID, PARTITION, Offset(start), "a")


def segment(start: int, end: int, name: str | None = None) -> SegmentEntry:
    return SegmentEntry(
        name=name or name_at(start),
        size_bytes=10,
        sha256="00" * 32,
        start_offset=Offset(start),
        end_offset=Offset(end),
        first_offset=Offset(start),
        last_offset=Offset(end - 1),
        min_timestamp=1,
        max_timestamp=2,
        batch_count=1,
        record_count=end - start,
        batch_bytes=10,
        largest_batch_bytes=10,
    )


def append(start: int, end: int, *pieces: SegmentEntry | Gap, epochs: tuple[tuple[int, int], ...] = ()) -> AppendRange:
    return AppendRange(
        topic=TOPIC,
        topic_id=TOPIC_ID,
        partition=PARTITION,
        start_offset=Offset(start),
        end_offset=Offset(end),
        segments=[piece for piece in pieces if isinstance(piece, SegmentEntry)],
        gaps=[piece for piece in pieces if isinstance(piece, Gap)],
        leader_epochs=[EpochStart(LeaderEpoch(epoch), Offset(offset)) for epoch, offset in epochs],
        aborted_transactions=[AbortedTransactionEntry(Offset(start), ProducerId(1))],
    )


def supersede(from_offset: int) -> SupersedeTail:
    return SupersedeTail(topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION, from_offset=Offset(from_offset))


def committed(*updates: Update, previous: Manifest | None = None) -> Manifest:
    return commit(previous, a_run("r"), updates, [])


def partition_of(manifest: Manifest) -> PartitionEntry:
    return manifest.topics[0].partitions[0]


@pytest.fixture
def first() -> Manifest:
    return committed(
        put_topic(),
        put_partition(),
        append(0, 60, segment(0, 40), segment(40, 60), epochs=((1, 0), (2, 50))),
        PutGroups(groups=[GROUP]),
        PutFailures(failures=[Failure(message="late")]),
    )


def test_a_manifest_survives_its_encoding(first: Manifest) -> None:
    assert decode_document(encode_manifest(first), "m") == first


def test_numbers_rise_by_one(first: Manifest) -> None:
    assert (first.number, committed(previous=first).number) == (1, 2)


def test_what_no_update_touches_stays_and_failures_are_each_runs_own(first: Manifest) -> None:
    second = committed(previous=first)

    assert (second.topics, second.groups) == (first.topics, [GROUP])
    assert (first.is_complete, second.is_complete) == (False, True)


def test_the_previous_manifest_is_not_changed(first: Manifest) -> None:
    before = encode_manifest(first)

    committed(append(60, 80, segment(60, 80)), supersede(70), previous=first)

    assert encode_manifest(first) == before


def test_a_fresh_start_repeats_nothing(first: Manifest) -> None:
    second = committed(StartAfresh(), put_topic(), put_partition(), previous=first)

    assert (partition_of(second).segments, second.groups) == ([], [])


def test_ranges_are_appended_and_their_epochs_joined(first: Manifest) -> None:
    second = committed(append(60, 80, segment(60, 80), epochs=((2, 60), (3, 70))), previous=first)

    entry = partition_of(second)
    assert (entry.end_offset, len(entry.segments)) == (80, 3)
    assert [(each.leader_epoch, each.start_offset) for each in entry.leader_epochs] == [(1, 0), (2, 50), (3, 70)]
    assert [each.first_offset for each in entry.aborted_transactions] == [0, 60]


def test_a_partition_added_later_and_a_topic_that_grew_are_taken_over(first: Manifest) -> None:
    second = committed(put_topic(partition_count=2), put_partition(start=3, index=1), previous=first)

    assert second.topics[0].partition_count == 2
    assert [each.partition for each in second.topics[0].partitions] == [0, 1]
    assert len(partition_of(second).segments) == 2


def test_a_range_that_does_not_follow_is_refused(first: Manifest) -> None:
    with pytest.raises(RequirementFailed, match="orders-0 ends at offset 60; what was copied begins at 61"):
        committed(append(61, 80, segment(61, 80)), previous=first)


@pytest.mark.parametrize(
    ("pieces", "complaint"),
    [
        ([segment(60, 70)], "covered up to offset 70, not 80"),
        ([segment(60, 70), segment(71, 80)], "nothing, or two things, for the offsets at 70"),
        ([segment(60, 75), segment(70, 80)], "nothing, or two things, for the offsets at 75"),
        ([segment(60, 80, name_at(0))], "which is not the name of its segment at offset 60"),
        ([msgspec.structs.replace(segment(60, 80), first_offset=Offset(59))], "offset 59 is in two segments"),
    ],
)
def test_results_that_leave_a_hole_or_overlap_never_become_a_manifest(
    first: Manifest, pieces: list[SegmentEntry], complaint: str
) -> None:
    with pytest.raises(DamagedManifest, match=complaint):
        committed(append(60, 80, *pieces), previous=first)


def test_two_segments_cannot_be_one_object(first: Manifest) -> None:
    with pytest.raises(DamagedManifest, match=rf"names {name_at(40)} twice"):
        committed(supersede(40), append(40, 50, segment(40, 50)), previous=first)


def test_one_life_of_a_topic_cannot_have_two_ids(first: Manifest) -> None:
    with pytest.raises(DamagedManifest, match="one life of a topic twice"):
        committed(put_topic(topic_id=TopicId(UUID(int=3))), previous=first)


def test_a_superseded_tail_is_cut_from_the_live_offsets_and_its_objects_stay_named(first: Manifest) -> None:
    second = committed(supersede(30), append(30, 45, segment(30, 45), epochs=((5, 30),)), previous=first)

    entry = partition_of(second)
    assert [(each.start_offset, each.live_end_offset) for each in entry.segments] == [(0, 30), (30, 45)]
    assert [(each.start_offset, each.end_offset, each.leader_epoch) for each in entry.superseded] == [(30, 60, 2)]
    assert [each.name for each in entry.superseded[0].segments] == [name_at(40)]
    assert [each.leader_epoch for each in entry.leader_epochs] == [1, 5]
    assert second.object_names() == {name_at(0), name_at(40), name_at(30)}


def test_truncation_inside_a_gap_cuts_the_gap() -> None:
    gap = Gap(start_offset=Offset(40), end_offset=Offset(60), reason=GapReason.RETENTION)
    first = committed(put_topic(), put_partition(), append(0, 60, segment(0, 40), gap))

    second = committed(supersede(50), previous=first)

    assert [(each.start_offset, each.end_offset) for each in partition_of(second).gaps] == [(40, 50)]
    assert partition_of(second).end_offset == 50


def test_truncation_below_the_first_copied_offset_leaves_the_partition_empty_there() -> None:
    first = committed(put_topic(), put_partition(start=20), append(20, 60, segment(20, 60)))

    second = committed(supersede(5), previous=first)

    entry = partition_of(second)
    assert (entry.start_offset, entry.end_offset, entry.segments) == (5, 5, [])


def test_requirements_are_checked_against_the_previous_manifest(first: Manifest) -> None:
    ends_at = PartitionEndsAt(topic=TOPIC, topic_id=TOPIC_ID, partition=PARTITION, end_offset=Offset(60))
    commit(first, a_run("r"), [], [PreviousIs(number=1), ends_at])

    for requirement in (
        PreviousIs(number=None),
        PreviousIs(number=2),
        msgspec.structs.replace(ends_at, end_offset=Offset(59)),
        msgspec.structs.replace(ends_at, partition=PartitionIndex(1)),
        msgspec.structs.replace(ends_at, topic=TopicName("other")),
    ):
        with pytest.raises(RequirementFailed):
            commit(first, a_run("r"), [], [requirement])
