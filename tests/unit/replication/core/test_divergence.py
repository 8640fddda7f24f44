"""Where a leader and a follower part, and how far the follower cuts."""

from uuid import UUID

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import NO_LEADER_EPOCH, EpochEnd, LeaderEpoch, Offset
from quorate.replication.core.divergence import (
    Accepted,
    Diverged,
    EpochStart,
    FetchRefused,
    ReplicaLog,
    diverging_epoch,
    judge_fetch,
    last_epoch,
    truncation_offset,
)
from quorate.replication.core.messages import FetchPosition


def starts(*entries: tuple[int, int]) -> list[EpochStart]:
    return [(LeaderEpoch(epoch), Offset(start)) for epoch, start in entries]


def end(epoch: int, offset: int) -> EpochEnd:
    return EpochEnd(leader_epoch=LeaderEpoch(epoch), end_offset=Offset(offset))


@pytest.mark.parametrize(
    ("last_fetched_epoch", "fetch_offset", "expected"),
    [
        pytest.param(5, 15, None, id="prefix in the newest epoch"),
        pytest.param(5, 20, None, id="at the log end"),
        pytest.param(5, 21, (5, 20), id="beyond the log end"),
        pytest.param(3, 12, None, id="at the end of an older epoch"),
        pytest.param(3, 14, (3, 12), id="tail of an older epoch that the leader lacks"),
        pytest.param(4, 13, (3, 12), id="epoch that the leader never had"),
        pytest.param(2, 9, (2, 4), id="far behind in a long gone epoch"),
        pytest.param(1, 4, (1, 2), id="epoch below the first that the leader knows"),
        pytest.param(-1, 0, None, id="empty follower"),
        pytest.param(-1, 25, (5, 20), id="empty follower that stands beyond the end"),
        pytest.param(9, 13, (5, 20), id="epoch above all"),
    ],
)
def test_leader_names_the_newest_epoch_that_both_may_share(
    last_fetched_epoch: int, fetch_offset: int, expected: tuple[int, int] | None
) -> None:
    named = diverging_epoch(
        starts((2, 2), (3, 4), (5, 12)), LeaderEpoch(last_fetched_epoch), Offset(fetch_offset), Offset(20)
    )

    assert named == (None if expected is None else end(*expected))


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        pytest.param((4, 12), 12, id="shared epoch, leader has less of it"),
        pytest.param((4, 99), 18, id="shared epoch, leader has more of it"),
        pytest.param((3, 11), 9, id="unknown epoch: cut the newer, ask again"),
        pytest.param((0, 3), 0, id="older than all"),
        pytest.param((7, 15), 15, id="newest epoch"),
    ],
)
def test_follower_cuts_at_the_epoch_boundary(named: tuple[int, int], expected: int) -> None:
    assert truncation_offset(starts((1, 0), (4, 9), (7, 18)), Offset(20), end(*named)) == expected


def test_epoch_without_records_is_not_named() -> None:
    """No truncation could remove it, so the follower would be told to truncate for ever."""
    opened = starts((4, 0), (5, 10))

    assert last_epoch(opened, Offset(10)) == 4
    assert last_epoch(opened, Offset(11)) == 5
    assert last_epoch(starts((5, 0)), Offset(0)) == NO_LEADER_EPOCH


def test_logs_that_crossed_several_times_meet_after_several_rounds() -> None:
    """KIP-279: two replicas that led in turns without hearing of each other."""
    leader, leader_end = starts((1, 0), (3, 10), (5, 20)), Offset(30)
    follower, follower_end = starts((1, 0), (2, 10), (4, 18)), Offset(25)
    rounds = []
    while True:
        named = diverging_epoch(leader, last_epoch(follower, follower_end), follower_end, leader_end)
        if named is None:
            break
        follower_end = truncation_offset(follower, follower_end, named)
        follower = [entry for entry in follower if entry[1] < follower_end]
        rounds.append(follower_end)

    assert rounds == [18, 10]
    assert follower == starts((1, 0))


LOG = ReplicaLog(log_start_offset=Offset(6), log_end_offset=Offset(20), epochs=starts((3, 6), (5, 12)))


@pytest.mark.parametrize(
    ("leader_epoch", "fetch_offset", "last_fetched_epoch", "expected"),
    [
        pytest.param(5, 15, 5, Accepted(), id="prefix"),
        pytest.param(4, 15, 3, FetchRefused(error=ErrorCode.FENCED_LEADER_EPOCH), id="follower of a deposed leader"),
        pytest.param(6, 15, 5, FetchRefused(error=ErrorCode.UNKNOWN_LEADER_EPOCH), id="this leader is deposed"),
        pytest.param(5, 15, 6, FetchRefused(error=ErrorCode.UNKNOWN_LEADER_EPOCH), id="records of a later leader"),
        pytest.param(5, 5, 3, FetchRefused(error=ErrorCode.OFFSET_OUT_OF_RANGE), id="below the log start"),
        pytest.param(5, 14, 3, Diverged(diverging_epoch=end(3, 12)), id="parted"),
        pytest.param(5, 6, 3, Accepted(), id="at the log start, epoch known"),
        pytest.param(5, 6, -1, Accepted(), id="at the log start, empty"),
        pytest.param(
            5, 6, 2, FetchRefused(error=ErrorCode.OFFSET_OUT_OF_RANGE), id="deletion took the epoch that tells"
        ),
    ],
)
def test_leader_judges_a_fetch(
    leader_epoch: int, fetch_offset: int, last_fetched_epoch: int, expected: Accepted | Diverged | FetchRefused
) -> None:
    fetch = FetchPosition(
        UUID(int=1),
        0,
        LeaderEpoch(leader_epoch),
        Offset(fetch_offset),
        LeaderEpoch(last_fetched_epoch),
        Offset(0),
        Offset(0),
    )

    assert judge_fetch(fetch, LeaderEpoch(5), LOG) == expected
