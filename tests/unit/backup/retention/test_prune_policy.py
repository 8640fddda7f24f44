"""Which manifests stay, by which rule."""

from collections.abc import Collection
from typing import Any
from uuid import UUID

import pytest

from quorate.backup.errors import ConfigError
from quorate.backup.retention.prune_policy import (
    ManifestAge,
    PrunePolicy,
    TopicLife,
    check_forgotten,
    check_policy,
    decide,
)
from quorate.kernel.ids import TopicId, TopicName

DAY_MS = 86_400_000
HOUR_MS = 3_600_000
NOW_MS = 100 * DAY_MS


def ages(*days: float, compactions: dict[int, int] | None = None) -> list[ManifestAge]:
    """Manifests 1, 2, … captured so many days ago."""
    found = compactions or {}
    return [
        ManifestAge(number=number, captured_ms=NOW_MS - round(each * DAY_MS), compacted_from=found.get(number))
        for number, each in enumerate(days, start=1)
    ]


ORDERS = (TopicName("orders"), TopicId(UUID(int=1)))
ORDERS_AGAIN = (TopicName("orders"), TopicId(UUID(int=2)))
PAYMENTS = (TopicName("payments"), TopicId(UUID(int=3)))


def with_copies(*copies: dict[TopicLife, bool], partial: Collection[int] = ()) -> list[ManifestAge]:
    """Manifests 1, 2, … with these copies; True where all of a topic is there."""
    return [
        ManifestAge(number=number, captured_ms=0, is_complete=number not in partial and bool(each), copies=each)
        for number, each in enumerate(copies, start=1)
    ]


def dropped(manifests: list[ManifestAge], **options: Any) -> list[int]:
    policy = PrunePolicy(
        keep_last=None if "keep_last" not in options else int(options["keep_last"]),
        keep_days=options.get("keep_days"),
        keep_hourly=options.get("keep_hourly"),
        keep_daily=options.get("keep_daily"),
        only_rounds=bool(options.get("only_rounds")),
        drops_all=bool(options.get("drops_all")),
        forget_topics=tuple(options.get("forget_topics", ())),
    )
    return [each.number for each in decide(manifests, policy, now_ms=NOW_MS) if each.kept_because is None]


def test_the_last_so_many_stay() -> None:
    assert dropped(ages(9, 8, 7, 6), keep_last=2) == [1, 2]
    assert dropped(ages(9, 8), keep_last=5) == []


def test_those_of_the_last_so_many_days_stay_and_the_newest_however_old() -> None:
    assert dropped(ages(9, 3, 2.9, 0), keep_days=3) == [1, 2]
    assert dropped(ages(90, 80), keep_days=3) == [1]


def test_a_manifest_stays_where_one_of_two_rules_keeps_it() -> None:
    assert dropped(ages(9, 8, 2, 1), keep_last=3, keep_days=1.5) == [1]
    assert dropped(ages(9, 2, 1, 0), keep_last=1, keep_days=3) == [1]


def test_a_clock_that_is_behind_drops_less_and_never_the_newest() -> None:
    assert dropped(ages(-5, -4, -3), keep_days=0) == []


def test_a_compacted_manifest_goes_and_its_compaction_does_not_count() -> None:
    assert dropped(ages(4, 3, 3, 2, compactions={3: 2}), keep_last=3) == [2]
    assert dropped(ages(4, 3, 3, 3, compactions={3: 2, 4: 3}), keep_last=1) == [1, 2, 3]


def test_what_is_held_read_or_begun_is_told_apart() -> None:
    verdicts = decide(
        ages(5, 4, 3, 2, 1, 0), PrunePolicy(keep_last=3), now_ms=NOW_MS, held=[1], in_use={2: "ab-1"}, begun=[4, 6]
    )

    assert [verdict.kept_because for verdict in verdicts] == [
        "held",
        "read by restore ab-1, which is not done",
        None,
        None,
        "one of the last 3",
        "the newest",
    ]


def test_everything_goes_only_when_asked_for() -> None:
    assert dropped(ages(2, 1), drops_all=True) == [1, 2]


def test_empty_and_partial_manifests_do_not_count_for_keep_last() -> None:
    empty_since = with_copies({ORDERS: True}, {ORDERS: True}, {}, {}, {})
    assert dropped(empty_since, keep_last=2) == []
    assert dropped(with_copies({ORDERS: True}, {ORDERS: True}, {ORDERS: True}, {}), keep_last=2) == [1]
    partial = with_copies({ORDERS: True}, {ORDERS: True}, {ORDERS: False}, {ORDERS: True}, partial={3})
    assert dropped(partial, keep_last=2) == [1]
    assert dropped(partial, keep_last=1) == [1, 2, 3]


@pytest.mark.parametrize("rule", [{"keep_last": 1}, {"keep_days": 0}], ids=str)
def test_no_prune_takes_the_last_complete_copy_of_a_topic_unless_it_is_named(rule: dict[str, Any]) -> None:
    both, orders = {ORDERS: True, PAYMENTS: True}, {ORDERS: True}
    assert dropped(with_copies(both, both, orders, orders), **rule) == [1, 3]
    assert dropped(with_copies(both, both, orders, orders), **rule, forget_topics=["payments"]) == [1, 2, 3]
    assert dropped(with_copies(both, both, orders, orders), **rule, forget_topics=["orders"]) == [1, 3]


def test_the_last_complete_copy_outlives_any_number_of_partial_ones() -> None:
    partial = [{ORDERS: False}] * 5
    assert dropped(with_copies({ORDERS: True}, *partial, partial=range(2, 7)), keep_days=0) == [2, 3, 4, 5]


def test_where_no_copy_is_complete_the_newest_stays() -> None:
    assert dropped(with_copies({ORDERS: False}, {ORDERS: False}, {}, {}), keep_days=0) == [1, 3]


def test_a_topic_that_was_made_again_is_no_copy_of_the_old_one() -> None:
    assert dropped(with_copies({ORDERS: True}, {ORDERS: True}, {ORDERS_AGAIN: True}), keep_last=1) == [1]


def test_everything_means_everything() -> None:
    assert dropped(with_copies({ORDERS: True}, {}), drops_all=True) == [1, 2]


def test_what_was_begun_to_be_dropped_is_no_copy_any_more() -> None:
    manifests = with_copies({ORDERS: True}, {ORDERS: True}, {})
    verdicts = decide(manifests, PrunePolicy(keep_days=0), now_ms=NOW_MS, begun=[2])

    assert [each.number for each in verdicts if each.kept_because is None] == [2]
    assert verdicts[0].kept_because == ("the last complete copy of topic orders (--forget-topic orders lets it go)")


def test_a_name_to_forget_that_no_manifest_has_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match="--forget-topic ordrs: no manifest has that topic, so nothing was deleted"):
        check_forgotten(with_copies({ORDERS: True}), PrunePolicy(keep_last=1, forget_topics=("ordrs",)))
    with pytest.raises(ConfigError, match="--all deletes every topic"):
        check_policy(PrunePolicy(drops_all=True, forget_topics=("orders",)))


def test_one_of_each_hour_and_day_that_has_any_stays() -> None:
    hours = [NOW_MS + round(each * HOUR_MS) for each in (0, 0.5, 0.9, 1.2, 1.4, 30, 30.5, 31)]
    manifests = [ManifestAge(number=number, captured_ms=each) for number, each in enumerate(hours, start=1)]

    assert dropped(manifests, keep_hourly=3) == [1, 2, 3, 4, 6]
    assert dropped(manifests, keep_daily=2) == [1, 2, 3, 4, 6, 7]
    assert dropped(manifests, keep_daily=0) == [1, 2, 3, 4, 5, 6, 7]
    assert dropped(manifests, keep_hourly=1, keep_daily=9) == [1, 2, 3, 4, 6, 7]


def test_of_an_hour_the_newest_compaction_stays_and_no_partial_manifest() -> None:
    manifests = [
        ManifestAge(number=1, captured_ms=NOW_MS),
        ManifestAge(number=2, captured_ms=NOW_MS, compacted_from=1),
        ManifestAge(number=3, captured_ms=NOW_MS + 1),
        ManifestAge(number=4, captured_ms=NOW_MS + 2, is_complete=False),
        ManifestAge(number=5, captured_ms=NOW_MS + HOUR_MS),
        ManifestAge(number=6, captured_ms=NOW_MS + HOUR_MS + 1, is_complete=False),
        ManifestAge(number=7, captured_ms=NOW_MS + 9 * HOUR_MS),
    ]

    assert dropped(manifests, keep_hourly=5) == [1, 3, 4, 6]


def test_maintenance_takes_only_what_rounds_of_a_continuous_backup_wrote() -> None:
    manifests = [ManifestAge(number=number, captured_ms=NOW_MS, is_round=number % 2 == 0) for number in range(1, 6)]

    assert dropped(manifests, keep_days=-0.0, only_rounds=True) == [2, 4]
