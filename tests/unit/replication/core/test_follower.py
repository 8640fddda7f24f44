"""What a follower does with the answers of its leader."""

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import EpochEnd, LeaderEpoch, NodeId, Offset, PartitionLeader
from quorate.replication.core.divergence import ReplicaLog
from quorate.replication.core.follower import (
    AdvanceLogStart,
    AppendRecords,
    BackOff,
    CommittedRecordsWouldBeLost,
    FollowerEffect,
    FollowerEvent,
    FollowerReplica,
    RecordsAppended,
    TruncateFullyAndStartAt,
    TruncateTo,
)
from quorate.replication.core.leader_events import HighWatermarkAdvanced
from quorate.replication.core.messages import FetchedPartition, FetchPosition
from tests.unit.replication.core.leading import fetch_of


def log_of(end: int, *epochs: tuple[int, int], start: int = 0) -> ReplicaLog:
    entries = [(LeaderEpoch(epoch), Offset(first)) for epoch, first in epochs or [(1, 0)]]
    return ReplicaLog(log_start_offset=Offset(start), log_end_offset=Offset(end), epochs=entries)


class FollowedPartition:
    """A follower, and the high watermark that its partition keeps for it."""

    def __init__(self, follower: FollowerReplica, high_watermark: Offset) -> None:
        self.follower = follower
        self.high_watermark = high_watermark

    def fetch(self, log: ReplicaLog) -> FetchPosition:
        return fetch_of(self.follower, log)

    def step(self, event: FollowerEvent, log: ReplicaLog) -> list[FollowerEffect]:
        effects = self.follower.step(event, log, self.high_watermark)
        for effect in effects:
            if isinstance(effect, HighWatermarkAdvanced):
                self.high_watermark = effect.offset
            elif isinstance(effect, TruncateTo):
                self.high_watermark = min(self.high_watermark, effect.offset)
        return effects


def follower_at(high_watermark: int, *, is_unclean: bool = False, leader_epoch: int = 5) -> FollowedPartition:
    leader = PartitionLeader(node_id=NodeId(2), leader_epoch=LeaderEpoch(leader_epoch))
    return FollowedPartition(FollowerReplica(leader, is_unclean=is_unclean), Offset(high_watermark))


def answered(
    follower: FollowedPartition,
    log: ReplicaLog,
    *,
    high_watermark: int = 0,
    log_start: int = 0,
    has_records: bool = False,
    error: ErrorCode = ErrorCode.NONE,
    diverging: tuple[int, int] | None = None,
) -> FetchedPartition:
    named = None
    if diverging is not None:
        named = EpochEnd(leader_epoch=LeaderEpoch(diverging[0]), end_offset=Offset(diverging[1]))
    return FetchedPartition(
        fetch=follower.fetch(log),
        error=error,
        diverging_epoch=named,
        log_start_offset=Offset(log_start),
        high_watermark=Offset(high_watermark),
        records=memoryview(b"records" if has_records else b""),
    )


def advanced(offset: int) -> HighWatermarkAdvanced:
    return HighWatermarkAdvanced(offset=Offset(offset))


def test_records_are_appended_and_the_watermark_follows_the_leader_up_to_the_log_end() -> None:
    follower, log = follower_at(3), log_of(10)

    effects = follower.step(answered(follower, log, high_watermark=14, has_records=True), log)
    assert effects == [advanced(10), AppendRecords()]
    assert follower.step(RecordsAppended(), log_of(16)) == [advanced(14)]


def test_watermark_of_a_new_leader_that_knows_less_does_not_move_ours_back() -> None:
    follower, log = follower_at(8), log_of(10)

    assert follower.step(answered(follower, log, high_watermark=5), log) == []
    assert follower.high_watermark == 8


def test_answer_that_comes_late_or_twice_changes_nothing() -> None:
    follower, log = follower_at(0), log_of(10)
    answer = answered(follower, log, high_watermark=10, has_records=True, log_start=4)

    assert follower.step(answer, log_of(12)) == []
    assert follower.step(answer, log_of(10, (1, 0), (2, 9))) == []
    assert follower_at(0, leader_epoch=6).step(answer, log) == []


def test_follower_cuts_where_the_leader_names_the_boundary_not_at_its_own_watermark() -> None:
    follower, log = follower_at(3), log_of(10, (1, 0), (2, 8))

    assert follower.step(answered(follower, log, diverging=(1, 7)), log) == [TruncateTo(offset=Offset(7))]
    assert follower.high_watermark == 3


def test_diverging_answer_does_not_move_the_watermark() -> None:
    follower, log = follower_at(3), log_of(10, (1, 0), (2, 8))

    follower.step(answered(follower, log, diverging=(1, 7), high_watermark=10), log)
    assert follower.step(RecordsAppended(), log_of(7)) == []


def test_loss_of_committed_records_is_refused_loudly() -> None:
    follower, log = follower_at(9), log_of(10, (1, 0), (2, 8))

    with pytest.raises(CommittedRecordsWouldBeLost, match="everything before 9"):
        follower.step(answered(follower, log, diverging=(1, 7)), log)


def test_unclean_election_may_undo_what_was_committed() -> None:
    follower, log = follower_at(9, is_unclean=True), log_of(10, (1, 0), (2, 8))

    assert follower.step(answered(follower, log, diverging=(1, 7)), log) == [TruncateTo(offset=Offset(7))]
    assert follower.high_watermark == 7


def test_follower_that_fell_off_the_leaders_log_starts_over_at_its_start() -> None:
    follower, log = follower_at(4), log_of(10)
    answer = answered(follower, log, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=30)

    assert follower.step(answer, log) == [TruncateFullyAndStartAt(offset=Offset(30)), advanced(30)]


def test_out_of_range_that_the_leaders_log_start_does_not_explain_is_tried_again() -> None:
    follower, log = follower_at(4), log_of(10)
    answer = answered(follower, log, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=9)

    assert follower.step(answer, log) == [BackOff(error=ErrorCode.OFFSET_OUT_OF_RANGE)]


def test_records_below_the_leaders_log_start_that_nothing_vouches_for_are_dropped() -> None:
    """The leader's first epoch was cut off by deletion, so its boundary is no longer where the logs parted."""
    follower, log = follower_at(1), log_of(9, (0, 0))

    effects = follower.step(answered(follower, log, diverging=(0, 5), log_start=5), log)
    assert effects == [TruncateFullyAndStartAt(offset=Offset(5)), advanced(5)]


def test_deletion_on_the_leader_is_followed_before_its_records_are_appended() -> None:
    follower, log = follower_at(4), log_of(10)

    effects = follower.step(answered(follower, log, high_watermark=8, log_start=6, has_records=True), log)
    assert effects == [advanced(8), AdvanceLogStart(offset=Offset(6)), AppendRecords()]


@pytest.mark.parametrize("error", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH])
def test_refused_fetch_is_tried_again_later(error: ErrorCode) -> None:
    follower, log = follower_at(4), log_of(10)

    assert follower.step(answered(follower, log, error=error, log_start=30), log) == [BackOff(error=error)]
