"""Offsets of groups translated: nothing is skipped, wherever a group stood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.errors import BackupError
from quorate.backup.manifests.manifest import GroupEntry, GroupOffset
from quorate.backup.restore.batches import Span
from quorate.backup.restore.offset_map import first_unread, translate_group
from quorate.backup.restore.plan import KeptOffsets, MapSource, RestorePlan, TargetPartition, TargetTopic
from quorate.kernel.ids import Offset, PartitionIndex, ProducerEpoch, ProducerId, TopicId
from tests.unit.backup.batches import TOPIC, TOPIC_ID

P0, P1 = PartitionIndex(0), PartitionIndex(1)
END = Offset(9)


def spans(*pairs: tuple[int, int]) -> list[Span]:
    return [Span(Offset(first), length) for first, length in pairs]


def test_group_that_stood_inside_a_compaction_gap_goes_on_at_the_next_record() -> None:
    sources = [MapSource(P0, spans((0, 3), (10, 5)))]

    assert first_unread(sources, {P0: Offset(7)}) == 3


def test_group_inside_a_span_goes_on_at_its_own_record() -> None:
    assert first_unread([MapSource(P0, spans((0, 3), (10, 5)))], {P0: Offset(12)}) == 5


def test_group_before_the_start_and_behind_the_end() -> None:
    sources = [MapSource(P0, spans((10, 5)))]

    assert first_unread(sources, {P0: Offset(2)}) == 0
    assert first_unread(sources, {P0: Offset(15)}) == 5
    assert first_unread([], {P0: Offset(15)}) == 0


def test_source_partition_that_was_not_read_counts_from_its_first_record() -> None:
    sources = [MapSource(P0, spans((0, 4))), MapSource(P1, spans((0, 4)))]

    assert first_unread(sources, {P0: Offset(4)}) == 4


def test_groups_stay_where_they_were_where_records_keep_their_offsets() -> None:
    partitions = [
        TargetPartition(
            partition=P0, sources=[], kept_offsets=KeptOffsets(log_start_offset=Offset(5), log_end_offset=END)
        ),
        TargetPartition(partition=P1, sources=[]),
    ]
    plan = keeping_plan(partitions)

    def translated(**offsets: int) -> list[tuple[int, int]]:
        committed = [
            GroupOffset(topic=TOPIC, partition=PartitionIndex(int(each[1:])), offset=Offset(at))
            for each, at in offsets.items()
        ]
        group = GroupEntry(group="readers", captured_ms=0, offsets=committed)
        found = translate_group(group, plan, {TOPIC: {}}, {TOPIC: 1}).offsets
        return [(each.partition, each.offset) for each in found]

    assert translated(p0=7) == [(0, 7)]
    assert translated(p0=2) == [(0, 2)], "before the start, as at the source"
    assert translated(p0=END) == [(0, END)]
    assert translated(p0=END + 1) == [(0, END)], "what the backup has not got was read, and nothing behind it"
    assert translated(p1=3) == [(1, 0)], "a partition that is not restored is empty"


def keeping_plan(partitions: list[TargetPartition]) -> RestorePlan:
    topic = TargetTopic(
        source=TOPIC,
        source_topic_id=TopicId(TOPIC_ID),
        generation=1,
        name=TOPIC,
        partition_count=len(partitions),
        is_rehashed=False,
        max_batch_bytes=1,
        configs={},
        batch_bytes=0,
        lost_offsets=0,
        missing_partitions=0,
        unfinished_transactions=0,
        partitions=partitions,
    )
    return RestorePlan(
        backup_id="nightly",
        manifest_number=1,
        target_cluster_id="c",
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        start_ms=None,
        end_ms=None,
        log_append_time="original",
        preserve_offsets=True,
        replication_factor=None,
        map_id="m",
        topics=[topic],
    )


OFFSETS = st.sets(st.integers(0, 30), max_size=15)


@given(first=OFFSETS, second=OFFSETS, committed=st.tuples(st.integers(0, 35), st.integers(0, 35)))
def test_no_unread_record_is_skipped_and_the_first_one_is_next(
    first: set[int], second: set[int], committed: tuple[int, int]
) -> None:
    sources = [
        MapSource(PartitionIndex(index), spans(*[(offset, 1) for offset in sorted(offsets)]))
        for index, offsets in enumerate((first, second))
    ]
    records = [(index, offset) for index, offsets in enumerate((first, second)) for offset in sorted(offsets)]
    unread = [place for place, (index, offset) in enumerate(records) if offset >= committed[index]]

    found = first_unread(sources, {PartitionIndex(index): Offset(committed[index]) for index in range(2)})

    assert found == (unread[0] if unread else len(records))


def test_a_plan_of_a_topic_that_its_manifest_has_not_is_one_sentence() -> None:
    plan = keeping_plan([TargetPartition(partition=P0, sources=[])])

    with pytest.raises(BackupError, match=r"does not fit its manifest, which has no topic orders$"):
        translate_group(GroupEntry(group="readers", captured_ms=0), plan, {}, {})
