"""Ratios and verdicts of one node's rows, those with a limit beside them included."""

import pytest

from benchmarks.cases import Goal, Unit
from benchmarks.report import limit_table
from benchmarks.samples import Sample
from benchmarks.summary import GoalResult, Row, Verdict, judge, summarise
from benchmarks.systems import Durability

MEASURE = "produce-tls-64k-x4"
GOAL = Goal(text="a goal", prefixes=("produce-tls",), at_least=1.0)


def rows_of(values: dict[str, list[float]]) -> list[Row]:
    return summarise(
        [
            Sample(
                measure=MEASURE,
                durability=Durability.OS,
                system=system,
                unit=Unit.MEBIBYTES_PER_SECOND,
                value=value,
                seconds=1.0,
                generator_cpu_seconds=0.95 if system == "limit" else 0.5,
            )
            for system, each in values.items()
            for value in each
        ]
    )


def judged(ours: float, theirs: float, limit: float) -> GoalResult:
    (result,) = judge(rows_of({"Quorate": [ours], "Apache Kafka": [theirs], "limit": [limit]}), [GOAL])
    return result


@pytest.mark.parametrize(
    ("ours", "limit", "verdict", "is_at_limit"),
    [
        (101.0, 200.0, Verdict.MET, False),  # It reaches the goal itself.
        (90.0, 99.0, Verdict.MET, True),  # The limit misses the goal, and the node is near to it.
        (80.0, 99.0, Verdict.MISSED, False),  # There was more to be had than a tenth.
        (95.0, 100.0, Verdict.MISSED, False),  # The limit reaches the goal.
    ],
)
def test_a_row_at_its_limit_is_met_where_the_limit_misses_the_goal(
    ours: float, limit: float, verdict: Verdict, is_at_limit: bool
) -> None:
    result = judged(ours, 100.0, limit)

    assert result.verdict is verdict
    assert result.at_limit == ((f"{MEASURE} (os)",) if is_at_limit else ())


def test_a_limit_that_nobody_measured_excuses_nothing() -> None:
    (result,) = judge(rows_of({"Quorate": [99.0], "Apache Kafka": [100.0]}), [GOAL])

    assert result.verdict is Verdict.MISSED


def test_the_limit_stands_beside_both_in_a_table_of_its_own() -> None:
    rows = rows_of({"Quorate": [90.0, 80.0], "Apache Kafka": [200.0, 100.0], "limit": [100.0, 100.0]})

    (row,) = rows
    assert row.ratio is not None
    assert row.ratio.median == pytest.approx(0.625)
    assert not row.generator_bound
    cells = [cell.strip() for cell in limit_table(rows)[3].strip("|").split("|")]
    assert cells == [
        f"limit-{MEASURE} \\*",
        "os",
        "MiB/s",
        "100",
        "0.85",
        "0.80 to 0.90",
        "0.75",
        "0.50 to 1.00",
    ]
    assert limit_table(rows_of({"Quorate": [1.0], "Apache Kafka": [1.0]})) == []
