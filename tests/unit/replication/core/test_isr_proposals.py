"""Whom the leader wants in sync, and when it says so."""

import msgspec

from quorate.kernel.ids import BrokerEpoch, NodeId
from quorate.replication.core.leader_events import (
    IsrChangeOutdated,
    IsrChangeRefused,
    IsrChangeUnanswered,
    LiveBrokersChanged,
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
    proposals,
)


def test_follower_joins_when_it_has_everything_that_is_committed() -> None:
    leader = leader_of(LEADER, NEAR, log_end=10, high_watermark=10)
    leader.step(appended(14))

    assert leader.step(fetched(FAR, 9)) == []
    assert leader.step(fetched(FAR, 10)) == [proposal(1, LEADER, NEAR, FAR)]


def test_follower_joins_a_new_leader_only_with_all_that_its_log_held_at_its_election() -> None:
    """The new leader's watermark is behind what its predecessor may have acknowledged."""
    leader = leader_of(LEADER, NEAR, log_end=10, high_watermark=6)

    assert leader.step(fetched(FAR, 8)) == []
    assert leader.step(fetched(FAR, 10)) == [proposal(1, LEADER, NEAR, FAR)]


def test_restarted_follower_does_not_join_by_an_old_request() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(LiveBrokersChanged(broker_epochs={**EPOCHS, FAR: BrokerEpoch(121)}))

    assert leader.step(fetched(FAR, 0, broker_epoch=120)) == []
    [joining] = proposals(leader.step(fetched(FAR, 0, broker_epoch=121)))
    assert joining.isr[-1].broker_epoch == 121


def test_what_a_follower_had_before_its_restart_does_not_let_it_join() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10))
    leader.step(fetched(FAR, 10))
    leader.step(IsrChangeRefused(proposal=proposal(1)))
    leader.step(LiveBrokersChanged(broker_epochs={**EPOCHS, FAR: BrokerEpoch(121)}))

    assert leader.step(fetched(FAR, 4, broker_epoch=121, now_ms=200)) == []


def test_fenced_follower_does_not_join() -> None:
    live = {LEADER: EPOCHS[LEADER], NEAR: EPOCHS[NEAR]}

    assert leader_of(LEADER, NEAR, broker_epochs=live).step(fetched(FAR, 0)) == []


def test_stranger_does_not_join() -> None:
    stranger = msgspec.structs.replace(fetched(FAR, 0), follower=NodeId(99))

    assert leader_of(LEADER, NEAR).step(stranger) == []


def test_one_proposal_is_under_way_at_a_time() -> None:
    leader = leader_of(LEADER)
    assert leader.step(fetched(FAR, 0)) == [proposal(1, LEADER, FAR)]

    assert leader.step(fetched(NEAR, 0)) == []
    leader.step(committed(LEADER, FAR, partition_epoch=2))
    assert leader.step(fetched(NEAR, 0)) == [proposal(2, LEADER, FAR, NEAR, partition_epoch=2)]


def test_refused_proposal_is_made_again_after_a_while() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeRefused(proposal=proposal(1)))

    assert leader.step(fetched(FAR, 0, now_ms=99)) == []
    assert leader.step(fetched(FAR, 0, now_ms=100)) == [proposal(2, LEADER, NEAR, FAR)]


def test_answer_to_an_earlier_proposal_does_not_end_the_present_one() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeRefused(proposal=proposal(1)))
    leader.step(fetched(FAR, 0, now_ms=100))
    leader.step(IsrChangeRefused(proposal=proposal(1)))

    assert leader.step(fetched(FAR, 0, now_ms=500)) == []


def test_answer_to_a_proposal_of_an_earlier_leadership_does_not_end_the_present_one() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeRefused(proposal=proposal(1, leader_epoch=3)))

    assert leader.step(fetched(FAR, 0, now_ms=500)) == []


def test_unanswered_proposal_is_made_again_as_time_passes() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeUnanswered(proposal=proposal(1)))

    assert leader.step(passed(99)) == []
    assert leader.step(passed(100)) == [proposal(2, LEADER, NEAR, FAR)]


def test_unanswered_joining_of_a_dead_broker_is_settled_by_proposing_the_isr_as_it_is() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeUnanswered(proposal=proposal(1)))
    leader.step(LiveBrokersChanged(broker_epochs={LEADER: EPOCHS[LEADER], NEAR: EPOCHS[NEAR]}))

    assert leader.step(passed(100)) == [proposal(2, LEADER, NEAR)]


def test_leader_that_is_behind_the_controller_waits_for_the_news() -> None:
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(FAR, 0))
    leader.step(IsrChangeOutdated(proposal=proposal(1)))

    assert leader.step(fetched(FAR, 0, now_ms=5_000)) == []
    leader.step(committed(LEADER, NEAR, partition_epoch=2))
    assert leader.step(fetched(FAR, 0, now_ms=5_001)) == [proposal(2, LEADER, NEAR, FAR, partition_epoch=2)]


def test_follower_that_lags_for_too_long_is_dropped() -> None:
    leader = leader_of(LEADER, NEAR, FAR)
    leader.step(appended(10))
    leader.step(fetched(NEAR, 10, now_ms=5_000))
    leader.step(fetched(FAR, 4, now_ms=9_000))

    assert leader.step(passed(LAG_MS)) == []
    assert leader.step(passed(LAG_MS + 1)) == [proposal(1, LEADER, NEAR)]


def test_idle_partition_does_not_look_lagging() -> None:
    leader = leader_of(LEADER, NEAR, FAR)
    for follower in (NEAR, FAR):
        leader.step(fetched(follower, 0, now_ms=1))

    assert leader.step(passed(LAG_MS * 50)) == []
    leader.step(appended(1))
    leader.step(fetched(NEAR, 1, now_ms=LAG_MS * 50))
    leader.step(fetched(FAR, 1, now_ms=LAG_MS * 50))
    assert leader.step(passed(LAG_MS * 99)) == []


def test_follower_that_keeps_up_with_a_steady_load_is_not_lagging() -> None:
    """It never stands at the log end, but at each fetch has what there was at the one before."""
    leader = leader_of(LEADER, NEAR)
    leader.step(fetched(NEAR, 0, now_ms=0))
    for second in range(1, 40):
        leader.step(appended(second * 5))
        assert proposals(leader.step(fetched(NEAR, (second - 1) * 5, now_ms=second * 1_000))) == []
        assert leader.step(passed(second * 1_000)) == []


def test_follower_of_a_new_leader_that_never_fetches_is_dropped() -> None:
    leader = leader_of(LEADER, NEAR, FAR, log_end=3, high_watermark=3)
    leader.step(fetched(NEAR, 3))

    assert leader.step(passed(LAG_MS)) == []
    assert leader.step(passed(LAG_MS + 1)) == [proposal(1, LEADER, NEAR)]


def test_fenced_leader_proposes_nothing() -> None:
    leader = leader_of(LEADER, NEAR, broker_epochs={NEAR: EPOCHS[NEAR], FAR: EPOCHS[FAR]})

    assert leader.step(fetched(FAR, 0)) == []
