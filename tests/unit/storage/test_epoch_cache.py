import pytest

from quorate.kernel.ids import LeaderEpoch, Offset
from quorate.storage.epoch_cache import LeaderEpochCache

END = Offset(100)


def cache_of(*entries: tuple[int, int]) -> LeaderEpochCache:
    return LeaderEpochCache((LeaderEpoch(epoch), Offset(start)) for epoch, start in entries)


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),  # No epoch was asked for.
        (1, (1, 10)),  # Before all that is known: it must end where the first one starts.
        (2, (2, 30)),
        (3, (2, 30)),  # This leader never saw 3: the follower must go on from where 2 ends.
        (5, (5, 60)),
        (7, (7, 100)),  # The latest ends where the log ends.
        (8, (-1, -1)),  # Not known here yet.
    ],
)
def test_the_end_of_an_epoch_is_the_start_of_the_next(asked: int, answer: tuple[int, int]) -> None:
    cache = cache_of((2, 10), (5, 30), (7, 60))

    assert cache.end_offset_for(LeaderEpoch(asked), END) == answer


def test_an_empty_cache_knows_no_epoch() -> None:
    assert cache_of().end_offset_for(LeaderEpoch(0), END) == (-1, -1)
    assert cache_of().latest_epoch == -1


def test_only_news_is_assigned() -> None:
    cache = cache_of((1, 0))

    assert not cache.assign(LeaderEpoch(1), Offset(50))
    assert not cache.assign(LeaderEpoch(-1), Offset(50))
    assert cache.assign(LeaderEpoch(2), Offset(50))
    assert cache.entries() == [(1, 0), (2, 50)]


@pytest.mark.parametrize(
    ("epoch", "start", "left"),
    [
        (9, 60, [(2, 10), (5, 30), (9, 60)]),  # An epoch without records is replaced by the next.
        (9, 40, [(2, 10), (5, 30), (9, 40)]),
        (3, 70, [(2, 10), (3, 70)]),
    ],
)
def test_entries_that_contradict_a_new_one_are_dropped(epoch: int, start: int, left: list[tuple[int, int]]) -> None:
    cache = cache_of((2, 10), (5, 30), (7, 60))

    cache.assign(LeaderEpoch(epoch), Offset(start))

    assert cache.entries() == left


def test_truncation_at_the_end_forgets_epochs_that_start_there_or_later() -> None:
    cache = cache_of((2, 10), (5, 30), (7, 60))

    assert not cache.truncate_from_end(Offset(61))
    assert cache.truncate_from_end(Offset(30))
    assert cache.entries() == [(2, 10)]


def test_truncation_at_the_start_keeps_the_epoch_that_holds_the_new_start() -> None:
    cache = cache_of((2, 10), (5, 30), (7, 60))

    assert cache.truncate_from_start(Offset(45))
    assert cache.entries() == [(5, 45), (7, 60)]
    assert not cache.truncate_from_start(Offset(45))
    assert not cache.truncate_from_start(Offset(5))


def test_the_epoch_of_an_offset() -> None:
    cache = cache_of((2, 10), (5, 30))

    assert [cache.epoch_at(Offset(offset)) for offset in (9, 10, 29, 30, 99)] == [-1, 2, 2, 5, 5]
