"""How the partitions of a restore are dealt out to tasks, and to the lanes of a task."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorate.backup.spark.session.work_sharing import group_into_lanes


def size_of(item: int) -> int:
    return item


@given(st.lists(st.lists(st.integers(0, 100), min_size=1), max_size=60), st.integers(1, 9))
def test_every_pack_is_in_one_task_and_no_task_has_too_many(packs: list[list[int]], slots: int) -> None:
    tasks = group_into_lanes(packs, size_of, slots=slots)

    assert sorted(pack for task in tasks for pack in task) == sorted(packs)
    assert all(1 <= len(task) <= 8 for task in tasks)


@pytest.mark.parametrize(
    ("packs", "slots", "tasks"),
    [(12, 2, 2), (12, 3, 3), (12, 48, 12), (3, 2, 2), (16, 2, 2), (17, 2, 4), (1, 4, 1), (0, 2, 0)],
)
def test_every_slot_gets_as_many_tasks_unless_there_are_fewer_packs(packs: int, slots: int, tasks: int) -> None:
    assert len(group_into_lanes([[1]] * packs, size_of, slots=slots)) == tasks


def test_large_packs_are_spread_over_the_tasks() -> None:
    tasks = group_into_lanes([[100], [1], [1], [100], [1], [1]], size_of, slots=2)

    assert [sorted(task) for task in tasks] == [[[1], [1], [100]], [[1], [1], [100]]]
