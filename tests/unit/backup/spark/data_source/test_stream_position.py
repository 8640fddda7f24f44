"""Where a stream goes on, and what it says of records that are missing."""

from uuid import UUID

import pytest

from quorate.backup.spark.data_source.live_planning import LivePartition
from quorate.backup.spark.data_source.stream_source import (
    PartitionPosition,
    StreamPosition,
    TopicPosition,
    advance,
    decode_position,
    encode_position,
    find_loss,
    missing_partitions,
    spans_between,
)
from quorate.kernel.ids import LeaderEpoch, NodeId, Offset, PartitionIndex, TopicId, TopicName, TopicPartition

FIRST_ID, SECOND_ID = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def name(partition: int = 0, topic: str = "orders") -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(partition))


def live(
    end: int, *, partition: int = 0, start: int = 0, epoch: int = 5, topic_id: TopicId = FIRST_ID
) -> LivePartition:
    return LivePartition(
        name=name(partition),
        topic_id=topic_id,
        leader=NodeId(1),
        leader_epoch=LeaderEpoch(epoch),
        log_start_offset=Offset(start),
        end_offset=Offset(end),
        end_epoch=LeaderEpoch(epoch),
        log_bytes=None,
        local_log_start_offset=Offset(0),
    )


def at(*offsets: int, topic_id: TopicId = FIRST_ID) -> StreamPosition:
    partitions = {
        PartitionIndex(index): PartitionPosition(offset=Offset(offset), leader_epoch=LeaderEpoch(5))
        for index, offset in enumerate(offsets)
    }
    return {TopicName("orders"): TopicPosition(topic_id=topic_id, partitions=partitions)}


def test_position_survives_the_checkpoint() -> None:
    position = advance(at(3), [live(9), live(4, partition=1)], {}, None)
    assert decode_position(encode_position(position)) == position
    assert encode_position(at(3)) == {
        "orders": {"topic_id": str(FIRST_ID), "partitions": {"0": {"offset": 3, "leader_epoch": 5}}}
    }


def test_batch_holds_what_is_new() -> None:
    end = advance(at(3, 7), [live(9), live(7, partition=1)], {}, None)
    assert spans_between(at(3, 7), end) == {name(0): (3, 9)}


def test_nothing_new_is_the_same_position_even_under_another_leader() -> None:
    """Otherwise Spark would run an empty batch."""
    assert encode_position(advance(at(3), [live(3, epoch=9)], {}, None)) == encode_position(at(3))


def test_new_partition_is_read_from_its_beginning() -> None:
    end = advance(at(3), [live(3), live(8, partition=1)], {}, None)
    assert spans_between(at(3), end) == {name(1): (0, 8)}
    assert advance(end, [live(3), live(8, partition=1)], {}, None) == end
    assert spans_between(end, end) == {}


@pytest.mark.parametrize("limit", [1, 2, 7, 10, 100])
def test_limit_is_kept_and_everything_comes_in_the_end(limit: int) -> None:
    partitions = [live(50), live(3, partition=1), live(0, partition=2)]
    position, seen = at(0, 0, 0), 0
    for _ in range(60):
        end = advance(position, partitions, {}, limit)
        spans = spans_between(position, end)
        batch = sum(stop - start for start, stop in spans.values())
        assert batch <= limit
        seen, position = seen + batch, end
    assert seen == 53
    assert position[TopicName("orders")].partitions[PartitionIndex(0)].offset == 50


def test_deleted_records_are_a_loss_behind_which_it_can_go_on() -> None:
    loss = find_loss(at(3), live(9, start=5), {})
    assert loss is not None
    assert "offsets 3 to 4 of partition orders-0 were deleted" in loss.message
    end = advance(at(3), [live(9, start=5)], {name(): loss.begin}, None)
    assert spans_between(at(3), end) == {name(): (5, 9)}


@pytest.mark.parametrize(("partition", "diverging"), [(live(6), {}), (live(20, epoch=7), {name(): Offset(6)})])
def test_truncated_log_is_a_loss_from_which_the_new_records_are_read(
    partition: LivePartition, diverging: dict[TopicPartition, Offset]
) -> None:
    loss = find_loss(at(9), partition, diverging)
    assert loss is not None
    assert loss.message == "partition orders-0 was truncated to offset 6 after it was read up to 9"
    end = advance(at(9), [partition], {name(): loss.begin}, None)
    expected = {name(): (6, 20)} if diverging else {}
    assert spans_between(at(9), end) == expected


def test_topic_that_was_created_again_is_a_loss() -> None:
    loss = find_loss(at(9), live(9, topic_id=SECOND_ID), {})
    assert loss is not None
    assert "deleted and created again" in loss.message
    end = advance(at(9), [live(9, topic_id=SECOND_ID)], {name(): loss.begin}, None)
    assert spans_between(at(9), end) == {name(): (0, 9)}


def test_nothing_is_lost_where_nothing_is_missing() -> None:
    assert find_loss(at(3), live(9), {}) is None
    assert find_loss(at(3), live(9, partition=1), {}) is None
    assert find_loss({}, live(9), {}) is None


def test_beginning_of_a_new_partition_that_was_deleted_is_a_loss() -> None:
    loss = find_loss({}, live(9, start=4), {})
    assert loss is not None
    assert loss.message == "offsets 0 to 3 of the new partition orders-0 were deleted before they were read"
    assert loss.begin == 4


def test_partition_that_is_gone_is_named() -> None:
    assert missing_partitions(at(3, 4), [live(3)]) == [name(1)]
