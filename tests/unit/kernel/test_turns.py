import asyncio
from collections.abc import Callable
from itertools import pairwise

import pytest

from quorate.kernel.turns import Backlog


class Turns:
    """A loop of which a test takes the turns itself."""

    def __init__(self) -> None:
        self.next: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.next.append(callback)

    def take(self) -> None:
        due, self.next = self.next, []
        for callback in due:
            callback()


def backlog(turns: Turns, work: Callable[[int], None], **options: Callable[[], None]) -> Backlog[int]:
    loop: asyncio.AbstractEventLoop = turns  # type: ignore[assignment]
    return Backlog(loop, work, lambda error: pytest.fail(str(error)), per_turn=10, **options)


def test_few_are_done_at_once() -> None:
    turns, done = Turns(), list[int]()

    backlog(turns, done.append).run(range(10))

    assert done == list(range(10))
    assert not turns.next


def test_no_turn_takes_more_than_its_share_and_all_are_done_in_their_order() -> None:
    turns, done = Turns(), list[int]()
    work = backlog(turns, done.append)

    work.run(range(95))
    counts = [len(done)]
    while turns.next:
        turns.take()
        counts.append(len(done))

    assert max(after - before for before, after in pairwise(counts)) == 10
    assert done == list(range(95))


def test_what_comes_while_others_wait_goes_behind_them() -> None:
    turns, done = Turns(), list[int]()
    work = backlog(turns, done.append)

    work.run(range(15))
    work.run([99, 12])
    turns.take()

    assert done == [*range(15), 99]


def test_work_may_add_more_work() -> None:
    turns, done = Turns(), list[int]()

    def count_down(number: int) -> None:
        done.append(number)
        if number:
            work.run([number - 1])

    work = backlog(turns, count_down)
    work.run([3])
    while turns.next:
        turns.take()

    assert done == [3, 2, 1, 0]


def test_the_end_is_told_once_nothing_is_left() -> None:
    turns, done, ends = Turns(), list[int](), list[int]()
    work = backlog(turns, done.append, then=lambda: ends.append(len(done)))

    work.run(range(15))
    assert ends == []
    turns.take()

    assert ends == [15]


def test_a_failure_is_told_and_does_not_end_the_work() -> None:
    turns, errors, done = Turns(), list[Exception](), list[int]()

    def work_on(number: int) -> None:
        if number == 1:
            raise ValueError("one")
        done.append(number)

    loop: asyncio.AbstractEventLoop = turns  # type: ignore[assignment]
    work = Backlog(loop, work_on, errors.append, per_turn=10)
    work.run([0, 1, 2])
    turns.take()

    assert [str(error) for error in errors] == ["one"]
    assert done == [0, 2]
