"""Which rows a goal is about, and which systems a choice of rows needs."""

import pytest

from benchmarks import cases
from benchmarks.cases import GOALS, Selection


def test_rows_over_tls_have_goals_of_their_own() -> None:
    goals = {measure: [goal.text for goal in GOALS if goal.covers(measure)] for measure in cases.TLS_MEASURES}
    assert set(goals) == {
        f"{what}-tls-{size}-x{connections}"
        for what in ("produce", "fetch")
        for size in ("64k", "1m")
        for connections in (1, 4)
    }
    for measure, texts in goals.items():
        assert [text.partition(",")[0] for text in texts] == [f"{measure.partition('-')[0]} over TLS"]
    for measure in cases.PLAIN_MEASURES:
        assert not any("TLS" in goal.text for goal in GOALS if goal.covers(measure))


def test_every_rate_of_produce_and_fetch_is_judged_by_one_goal() -> None:
    for transfer in (*cases.TRANSFERS, *cases.TLS_TRANSFERS):
        for measure in (transfer.produce_name, transfer.fetch_name):
            assert [goal.at_least for goal in GOALS if goal.covers(measure)] == [1.0]


@pytest.mark.parametrize(
    ("words", "is_plain", "is_tls"),
    [
        ((), True, True),
        (("produce",), True, True),
        (("produce-64k", "latency"), True, False),
        (("fetch-tls",), False, True),
        (("fetch-tls-1m-x4", "memory"), True, True),
    ],
)
def test_only_the_systems_are_started_that_the_chosen_rows_need(
    words: tuple[str, ...], is_plain: bool, is_tls: bool
) -> None:
    selection = Selection(words=words)
    assert selection.wants_any(cases.PLAIN_MEASURES) == is_plain
    assert selection.wants_any(cases.TLS_MEASURES) == is_tls
