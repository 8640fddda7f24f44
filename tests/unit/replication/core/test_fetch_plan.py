"""Which partitions go into the next fetch."""

from collections import Counter

from quorate.kernel.ids import LeaderEpoch, NodeId, PartitionLeader
from quorate.replication.core.follower import FetchPlan, FetchPlanConfig, PlannedFetch

EAST, WEST = NodeId(4), NodeId(9)


def led_by(node: NodeId, epoch: int = 1) -> PartitionLeader:
    return PartitionLeader(node_id=node, leader_epoch=LeaderEpoch(epoch))


def plan_of(*partitions: str, leader: NodeId = EAST) -> FetchPlan[str]:
    plan: FetchPlan[str] = FetchPlan(FetchPlanConfig(backoff_ms=20, backoff_max_ms=100))
    for partition in partitions:
        plan.follow(partition, led_by(leader))
    return plan


def next_fetch(plan: FetchPlan[str], leader: NodeId, now_ms: int) -> list[PlannedFetch[str]]:
    return plan.next_fetch(leader, now_ms, most=10)


def names(planned: list[PlannedFetch[str]]) -> list[str]:
    return [fetch.partition for fetch in planned]


def test_all_partitions_of_a_leader_go_into_one_request() -> None:
    plan = plan_of("a", "b")
    plan.follow("c", led_by(WEST))

    assert plan.leaders() == [EAST, WEST]
    assert names(next_fetch(plan, EAST, 0)) == ["a", "b"]
    assert names(next_fetch(plan, WEST, 0)) == ["c"]


def test_partition_is_in_one_request_at_a_time() -> None:
    plan = plan_of("a", "b")
    a, b = next_fetch(plan, EAST, 0)

    assert names(next_fetch(plan, EAST, 0)) == []
    plan.answered(a)
    assert names(next_fetch(plan, EAST, 0)) == ["a"]
    plan.answered(b)
    plan.answered(b)
    assert names(next_fetch(plan, EAST, 0)) == ["b"]


def test_partition_that_fails_waits_alone_and_longer_each_time() -> None:
    plan = plan_of("a", "b")
    now_ms, waits = 0, []
    for _ in range(5):
        fetches = {fetch.partition: fetch for fetch in next_fetch(plan, EAST, now_ms)}
        plan.failed(fetches["a"], now_ms)
        plan.answered(fetches["b"])
        ready_ms = plan.next_ready_ms(EAST)
        assert ready_ms is not None
        waits.append(ready_ms - now_ms)
        [b] = next_fetch(plan, EAST, ready_ms - 1)
        plan.answered(b)
        now_ms = ready_ms

    assert waits == [20, 40, 80, 100, 100]


def test_success_ends_the_backoff() -> None:
    plan = plan_of("a")
    for _ in range(2):
        plan.failed(next_fetch(plan, EAST, 1_000)[0], 0)
    plan.answered(next_fetch(plan, EAST, 1_000)[0])

    assert plan.next_ready_ms(EAST) is None
    plan.failed(next_fetch(plan, EAST, 1_000)[0], 1_000)
    assert plan.next_ready_ms(EAST) == 1_020


def test_new_leader_is_asked_at_once_and_the_old_answer_is_void() -> None:
    plan = plan_of("a")
    [old] = next_fetch(plan, EAST, 0)
    plan.follow("a", led_by(WEST, 2))
    assert plan.leaders() == [WEST]
    [new] = next_fetch(plan, WEST, 0)

    plan.failed(old, 0)
    plan.answered(old)
    assert next_fetch(plan, WEST, 0) == []  # Still in flight to the new leader.
    plan.answered(new)
    assert names(next_fetch(plan, WEST, 0)) == ["a"]


def test_news_of_an_older_epoch_is_no_news() -> None:
    plan = plan_of()
    plan.follow("a", led_by(WEST, 3))
    plan.follow("a", led_by(EAST, 2))

    assert plan.leaders() == [WEST]


def test_partition_that_is_no_longer_followed_is_forgotten() -> None:
    plan = plan_of("a")
    [fetch] = next_fetch(plan, EAST, 0)
    plan.unfollow("a")
    plan.unfollow("a")
    plan.answered(fetch)

    assert plan.leaders() == []
    assert next_fetch(plan, EAST, 0) == []


def test_every_partition_gets_its_turn_under_a_byte_limit() -> None:
    plan = plan_of(*"abcde")
    served: Counter[str] = Counter()
    asked: list[PlannedFetch[str]] = []
    for _ in range(50):
        asked += next_fetch(plan, EAST, 0)
        answered, asked = asked[:2], asked[2:]  # All that fits into an answer.
        for fetch in answered:
            served[fetch.partition] += 1
            plan.answered(fetch)

    assert served == dict.fromkeys("abcde", 20)


def test_what_does_not_fit_into_a_request_comes_first_in_the_next_one() -> None:
    plan = plan_of(*"abcde")
    first = plan.next_fetch(EAST, 0, most=3)
    assert names(first) == ["a", "b", "c"]
    assert plan.is_ready(EAST)
    plan.answered(first[0])
    assert names(plan.next_fetch(EAST, 0, most=3)) == ["d", "e", "a"]
    assert not plan.is_ready(EAST)
    assert not plan.is_ready(WEST)


def test_a_partition_that_is_deferred_is_asked_for_later_and_is_not_taken_for_failing() -> None:
    plan = plan_of("orders-0")
    (fetch,) = next_fetch(plan, EAST, 1_000)
    plan.defer(fetch, 1_500)
    assert plan.next_ready_ms(EAST) == 1_500
    assert next_fetch(plan, EAST, 1_499) == []
    (again,) = next_fetch(plan, EAST, 1_500)
    plan.failed(again, 1_500)
    assert plan.next_ready_ms(EAST) == 1_520
    (last,) = next_fetch(plan, EAST, 1_520)
    plan.answered(last)
    assert plan.next_ready_ms(EAST) is None
