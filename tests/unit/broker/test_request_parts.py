"""Requests cut into parts: nothing is lost or doubled, no part is too large, and the answers fit together again."""

from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.broker.request_parts import Parts, cut, join
from quorate.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from quorate.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from quorate.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

GROUPS = Parts(of=("groups",), into=("groups",), distinct_by=())
PARTITIONS = Parts(of=("topics", "partitions"), into=("topics", "partitions"))
OFFSETS = Parts(of=("groups", "topics", "partition_indexes"), into=("groups", "topics", "partitions"))

counts = st.lists(st.integers(0, 12), max_size=6)


def list_offsets(request: ListOffsetsRequest) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=each.partition_index) for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def fetch_offsets(request: OffsetFetchRequest) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=index) for index in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in request.groups
        ]
    )


@given(counts=counts, size=st.integers(1, 7))
def test_partitions_of_topics_are_answered_as_if_there_had_been_no_cut(counts: list[int], size: int) -> None:
    request = ListOffsetsRequest(
        isolation_level=1,
        topics=[
            ListOffsetsTopic(
                name=str(number), partitions=[ListOffsetsPartition(partition_index=index) for index in range(count)]
            )
            for number, count in enumerate(counts)
        ],
    )
    parts = list(cut(request, msgspec.structs.replace(PARTITIONS, per_part=size)))
    assert all(PARTITIONS.count(part.request) <= size for part in parts)
    assert all(isinstance(part.request, ListOffsetsRequest) and part.request.isolation_level == 1 for part in parts)

    answers = [(part, list_offsets(cast(ListOffsetsRequest, part.request))) for part in parts]

    if answers:
        assert join(answers, PARTITIONS) == list_offsets(request)


@given(groups=st.lists(counts, max_size=4), size=st.integers(1, 7))
def test_three_levels_are_answered_as_if_there_had_been_no_cut(groups: list[list[int]], size: int) -> None:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=str(number),
                topics=[
                    OffsetFetchRequestTopics(name=str(topic), partition_indexes=tuple(range(count)))
                    for topic, count in enumerate(counts)
                ],
            )
            for number, counts in enumerate(groups)
        ]
    )
    parts = list(cut(request, msgspec.structs.replace(OFFSETS, per_part=size)))
    assert all(OFFSETS.count(part.request) <= size for part in parts)

    answers = [(part, fetch_offsets(cast(OffsetFetchRequest, part.request))) for part in parts]

    if answers:
        assert join(answers, OFFSETS) == fetch_offsets(request)


def test_what_is_named_twice_is_answered_once() -> None:
    request = DescribeGroupsRequest(groups=["a", "b", "a", *[""] * 1000])

    assert [
        list(cast(DescribeGroupsRequest, part.request).groups)
        for part in cut(request, msgspec.structs.replace(GROUPS, per_part=2))
    ] == [
        ["a", "b"],
        [""],
    ]


def test_an_error_of_one_part_is_the_error_of_the_whole() -> None:
    group = OffsetFetchResponseGroup(group_id="g", topics=[OffsetFetchResponseTopics(name="t")])
    failed = OffsetFetchResponseGroup(group_id="g", error_code=16, topics=[])
    part = next(cut(DescribeGroupsRequest(groups=["g"]), GROUPS))
    continued = msgspec.structs.replace(part, continued_levels=1)

    for first, second in ((group, failed), (failed, group)):
        answers = [(part, OffsetFetchResponse(groups=[first])), (continued, OffsetFetchResponse(groups=[second]))]
        joined = join(answers, OFFSETS)
        assert isinstance(joined, OffsetFetchResponse)
        assert [each.error_code for each in joined.groups] == [16]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_groups_keep_their_order(size: int) -> None:
    request = DescribeGroupsRequest(groups=[str(number) for number in range(10)])
    answers = [
        (
            part,
            DescribeGroupsResponse(
                groups=[DescribedGroup(group_id=name) for name in cast(DescribeGroupsRequest, part.request).groups]
            ),
        )
        for part in cut(request, msgspec.structs.replace(GROUPS, per_part=size))
    ]

    joined = join(answers, GROUPS)

    assert isinstance(joined, DescribeGroupsResponse)
    assert [group.group_id for group in joined.groups] == list(request.groups)
