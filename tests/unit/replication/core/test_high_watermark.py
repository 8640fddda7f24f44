"""What the leader calls committed."""

import pytest

from quorate.kernel.errors import ErrorCode
from quorate.kernel.ids import BrokerEpoch, Offset
from quorate.replication.core.leader_events import (
    HighWatermarkAdvanced,
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LeaderDurable,
    LeaderEvent,
    LiveBrokersChanged,
    MinInsyncReplicasChanged,
)
from tests.unit.replication.core.leading import (
    EPOCHS,
    FAR,
    LAG_MS,
    LEADER,
    NEAR,
    appended,
    committed,
    fetched,
    leader_of,
    passed,
    proposal,
)


def advanced(offset: int) -> HighWatermarkAdvanced:
    return HighWatermarkAdvanced(offset=Offset(offset))


def test_record_commits_only_when_the_slowest_in_sync_replica_has_it() -> None:
    leader = leader_of(LEADER, NEAR, FAR)

    assert leader.step(appended(10)) == []
    assert leader.step(fetched(NEAR, 10)) == []
    assert leader.step(fetched(FAR, 7)) == [advanced(7)]
    assert leader.step(fetched(FAR, 10)) == [advanced(10)]


def test_replica_that_is_out_of_sync_holds_nothing_back() -> None:
    leader = leader_of(LEADER, NEAR, log_end=5, high_watermark=5)
    leader.step(appended(10))
    leader.step(fetched(FAR, 2))

    assert leader.step(fetched(NEAR, 10)) == [advanced(10)]


def test_watermark_does_not_move_back_by_a_request_that_was_overtaken() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10))

    assert leader.step(fetched(NEAR, 4)) == []
    assert leader.high_watermark == 10
    assert leader.step(appended(12)) == []
    assert leader.step(fetched(NEAR, 12)) == [advanced(12)]


def test_leader_counts_only_what_it_has_synced_where_durability_asks_for_it() -> None:
    leader = leader_of(LEADER, NEAR, requires_sync=True)
    leader.step(appended(10))

    assert leader.step(fetched(NEAR, 10)) == []
    assert leader.step(LeaderDurable(offset=Offset(6))) == [advanced(6)]
    assert leader.step(LeaderDurable(offset=Offset(10))) == [advanced(10)]


def test_new_leader_does_not_show_its_own_tail() -> None:
    leader = leader_of(LEADER, NEAR, FAR, log_end=20, high_watermark=15)

    assert leader.high_watermark == 15
    assert leader.high_watermark < leader.leader.epoch_start_offset
    assert leader.step(appended(21)) == []
    assert leader.step(fetched(NEAR, 20)) == []
    assert leader.step(fetched(FAR, 18)) == [advanced(18)]
    assert leader.step(fetched(FAR, 20)) == [advanced(20)]
    assert leader.high_watermark >= leader.leader.epoch_start_offset


def test_leader_alone_in_sync_has_committed_all_from_the_start() -> None:
    assert leader_of(LEADER, log_end=20, high_watermark=15).high_watermark == 20


def test_watermark_beyond_the_log_is_refused_loudly() -> None:
    with pytest.raises(ValueError, match="beyond the log end"):
        leader_of(LEADER, log_end=20, high_watermark=21)


def test_replica_counts_from_the_moment_its_joining_is_proposed() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10))
    assert leader.step(fetched(FAR, 10)) == [proposal(1, LEADER, NEAR, FAR)]
    leader.step(passed(LAG_MS * 2))  # So that it is not waited for as one about to join.
    leader.step(appended(12))

    assert leader.step(fetched(NEAR, 12, now_ms=LAG_MS * 2)) == []
    leader.step(IsrChangeRefused(proposal=proposal(1)))
    assert leader.high_watermark == 12


@pytest.mark.parametrize("fate", [IsrChangeUnanswered(proposal=proposal(1)), IsrChangeOutdated(proposal=proposal(1))])
def test_replica_that_may_have_joined_unheard_still_counts(fate: LeaderEvent) -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10))
    leader.step(fetched(FAR, 10))
    leader.step(fate)
    leader.step(appended(12))
    leader.step(passed(LAG_MS * 2))
    leader.step(IsrChangeRefused(proposal=proposal(2)))

    assert advanced(12) not in leader.step(fetched(NEAR, 12, now_ms=LAG_MS * 2))
    assert leader.step(committed(LEADER, NEAR, partition_epoch=2)) == [advanced(12)]


def test_removal_counts_only_once_it_is_committed() -> None:
    leader = leader_of(LEADER, NEAR, FAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10, now_ms=LAG_MS))
    assert leader.step(passed(LAG_MS + 1)) == [proposal(1, LEADER, NEAR)]

    assert leader.step(fetched(NEAR, 10, now_ms=LAG_MS + 2)) == []
    assert leader.step(committed(LEADER, NEAR, partition_epoch=2)) == [advanced(10)]


def test_membership_that_is_replayed_twice_is_no_news() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))

    assert leader.step(committed(LEADER, partition_epoch=1)) == []
    assert leader.leader.isr == {LEADER, NEAR}


def test_fetch_of_an_ended_life_says_nothing_about_this_one() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))
    leader.step(LiveBrokersChanged(broker_epochs={**EPOCHS, NEAR: BrokerEpoch(31)}))

    assert leader.step(fetched(NEAR, 10, broker_epoch=30)) == []
    assert leader.step(fetched(NEAR, 8, broker_epoch=31)) == [advanced(8)]
    assert leader.step(fetched(NEAR, 10, broker_epoch=30)) == []


def test_follower_that_is_about_to_join_is_waited_for() -> None:
    """Otherwise the watermark of a busy leader that is alone in sync runs away from it for ever."""
    leader = leader_of(LEADER)
    leader.step(appended(10))
    leader.step(fetched(FAR, 10))
    leader.step(IsrChangeRefused(proposal=proposal(1)))

    assert leader.step(appended(15)) == []
    assert leader.step(fetched(FAR, 15, now_ms=100)) == [advanced(15), proposal(2, LEADER, FAR)]


def test_min_insync_replicas_is_enforced_by_the_committed_isr() -> None:
    leader = leader_of(LEADER, min_insync_replicas=2)
    leader.step(fetched(NEAR, 0))  # Proposed, not committed.

    assert leader.leader.check_writable(acks_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    assert leader.leader.check_writable(acks_all=False) is None
    leader.step(committed(LEADER, NEAR, partition_epoch=2))
    assert leader.leader.check_writable(acks_all=True) is None
    leader.step(MinInsyncReplicasChanged(min_insync_replicas=3))
    assert leader.leader.check_writable(acks_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS
    leader.step(committed(LEADER, NEAR, FAR, partition_epoch=3))
    leader.step(MinInsyncReplicasChanged(min_insync_replicas=9))
    assert leader.leader.has_enough_replicas  # There are no more than three.


def test_accepted_fetch_beyond_the_log_end_is_refused_loudly() -> None:
    with pytest.raises(ValueError, match="beyond the log end"):
        leader_of(LEADER, NEAR).step(fetched(NEAR, 1))


def test_leader_outside_of_its_isr_is_refused_loudly() -> None:
    with pytest.raises(ValueError, match="not in sync"):
        leader_of(LEADER, NEAR).step(committed(NEAR, partition_epoch=2))
