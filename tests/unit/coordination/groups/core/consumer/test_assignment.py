"""The server's assignors: everything is assigned once, evenly, and stays where it was."""

from collections.abc import Callable, Mapping
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorate.coordination.groups.core.consumer.assignment import (
    ASSIGNORS,
    AssignmentProblem,
    assign_ranges,
    assign_uniformly,
)
from quorate.coordination.groups.core.consumer.topics import AssignedPartition, Partitions
from quorate.kernel.ids import MemberId, PartitionIndex, TopicId

Assignment = Mapping[MemberId, Partitions]
Assignor = Callable[[AssignmentProblem], Assignment]

MEMBERS = [MemberId(f"member-{number}") for number in range(6)]
TOPICS = [TopicId(UUID(int=number)) for number in range(1, 6)]

counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


@st.composite
def problems(draw: st.DrawFn) -> AssignmentProblem:
    """Members with subscriptions of their own, and something that they had before, possible or not."""
    partition_counts = draw(counts)
    topics = st.frozensets(st.sampled_from(sorted(partition_counts)))
    subscriptions = draw(st.dictionaries(st.sampled_from(MEMBERS), topics, min_size=1))
    partitions = st.builds(AssignedPartition, st.sampled_from(TOPICS), st.integers(0, 9).map(PartitionIndex))
    previous = draw(st.dictionaries(st.sampled_from(MEMBERS), st.frozensets(partitions, max_size=12)))
    return AssignmentProblem(subscriptions=subscriptions, partition_counts=partition_counts, previous=previous)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=list(ASSIGNORS))
@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_every_partition_that_somebody_reads_has_one_owner_who_reads_it(
    assignor: Assignor, problem: AssignmentProblem
) -> None:
    assigned = assignor(problem)

    assert assigned.keys() == problem.subscriptions.keys()
    owned = [partition for partitions in assigned.values() for partition in partitions]
    assert len(owned) == len(set(owned)), "two owners"
    assert set(owned) == {
        AssignedPartition(topic_id, PartitionIndex(index))
        for topic_id in problem.subscribers()
        for index in range(problem.partition_counts[topic_id])
    }
    for member_id, partitions in assigned.items():
        assert {partition.topic_id for partition in partitions} <= problem.subscriptions[member_id]


@settings(max_examples=40, deadline=None)
@given(problem=problems())
def test_uniform_is_as_even_as_can_be_and_then_changes_nothing_any_more(problem: AssignmentProblem) -> None:
    assigned = assign_uniformly(problem)

    assert assign_uniformly(problem) == assigned, "the same problem has another answer"
    for giver in assigned:
        for receiver in _reachable(problem, assigned, giver):
            assert len(assigned[giver]) <= len(assigned[receiver]) + 1, f"{giver} has too much, {receiver} too little"
    again = AssignmentProblem(
        subscriptions=problem.subscriptions, partition_counts=problem.partition_counts, previous=assigned
    )
    assert assign_uniformly(again) == assigned, "what is even already has changed"


def _reachable(problem: AssignmentProblem, assigned: Assignment, start: MemberId) -> set[MemberId]:
    """Everybody to whom a chain of moves leads, each to a member that reads the topic."""
    reached, queue = {start}, [start]
    while queue:
        topics = {partition.topic_id for partition in assigned[queue.pop()]}
        found = {each for each, subscribed in problem.subscriptions.items() if topics & subscribed} - reached
        reached |= found
        queue += found
    return reached


@settings(deadline=None)
@given(partition_counts=counts, members=st.integers(2, 6), leaver=st.integers(0, 5))
def test_uniform_takes_nothing_from_those_who_stay_when_one_leaves(
    partition_counts: dict[TopicId, int], members: int, leaver: int
) -> None:
    subscriptions = dict.fromkeys(MEMBERS[:members], frozenset(partition_counts))
    before = assign_uniformly(AssignmentProblem(subscriptions=subscriptions, partition_counts=partition_counts))
    del subscriptions[MEMBERS[leaver % members]]

    after = assign_uniformly(
        AssignmentProblem(subscriptions=subscriptions, partition_counts=partition_counts, previous=before)
    )
    for member_id, partitions in after.items():
        assert before[member_id] <= partitions


@settings(deadline=None)
@given(partition_counts=counts, members=st.integers(1, 5))
def test_uniform_moves_only_the_share_of_a_new_member(partition_counts: dict[TopicId, int], members: int) -> None:
    everything = frozenset(partition_counts)
    subscriptions = dict.fromkeys(MEMBERS[:members], everything)
    before = assign_uniformly(AssignmentProblem(subscriptions=subscriptions, partition_counts=partition_counts))
    newcomer = MEMBERS[members]
    subscriptions = {**subscriptions, newcomer: everything}

    after = assign_uniformly(
        AssignmentProblem(subscriptions=subscriptions, partition_counts=partition_counts, previous=before)
    )
    for member_id in before:
        assert after[member_id] <= before[member_id], "a partition moved between members that were there before"
    loads = [len(partitions) for partitions in after.values()]
    assert max(loads) - min(loads) <= 1


def test_range_gives_contiguous_runs_and_the_same_indexes_of_each_topic() -> None:
    subscriptions = dict.fromkeys(MEMBERS[:3], frozenset(TOPICS[:2]))
    problem = AssignmentProblem(subscriptions=subscriptions, partition_counts=dict.fromkeys(TOPICS[:2], 7))

    indexes = [
        [sorted(p.partition for p in partitions if p.topic_id == topic_id) for topic_id in TOPICS[:2]]
        for partitions in assign_ranges(problem).values()
    ]
    assert indexes == [[[0, 1, 2]] * 2, [[3, 4]] * 2, [[5, 6]] * 2]


def test_a_chain_of_members_passes_load_on_where_no_single_move_can() -> None:
    """One reads only the first topic, one both, one only the second; all begins with the first two."""
    one, both, other = MEMBERS[:3]
    first, second = TOPICS[:2]
    previous = {
        one: frozenset(AssignedPartition(first, PartitionIndex(index)) for index in range(4)),
        both: frozenset(AssignedPartition(second, PartitionIndex(index)) for index in range(3)),
    }
    problem = AssignmentProblem(
        subscriptions={one: frozenset({first}), both: frozenset({first, second}), other: frozenset({second})},
        partition_counts={first: 4, second: 3},
        previous=previous,
    )

    assert sorted(len(partitions) for partitions in assign_uniformly(problem).values()) == [2, 2, 3]
