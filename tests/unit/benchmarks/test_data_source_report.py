"""The data source's page: ratios of runs that followed each other, and the goal that they are held against."""

import pytest

from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Run
from benchmarks.contenders.names import ContenderName
from benchmarks.data_source.cases import QUICK
from benchmarks.data_source.read_job import tasks_for
from benchmarks.data_source.report import make_report, render
from benchmarks.summary import Verdict
from tests.unit.benchmarks.test_backup_report import ENVIRONMENT

CONNECTOR = Connector(description="4.3.0", jars=(), is_of_spark_version=True)


def run(contender: ContenderName, repeat: int, *, seconds: float, cpu_seconds: float) -> Run:
    return Run(
        case="data-source-lz4",
        contender=contender,
        repeat=repeat,
        seconds=seconds,
        records=1000,
        log_bytes=1,
        stored_bytes=0,
        cpu_seconds=cpu_seconds,
        cluster_cpu_seconds=0.1,
        other_cpu_seconds=0.0,
        peak_task_memory_bytes=None,
        peak_tree_memory_bytes=1,
    )


@pytest.mark.parametrize(("cpu_seconds", "verdict"), [(12.0, Verdict.MET), (4.0, Verdict.MISSED)])
def test_goal_is_judged_by_rows_per_cpu_second(cpu_seconds: float, verdict: Verdict) -> None:
    runs = [
        each
        for repeat in range(3)
        for each in (
            run(ContenderName.QUORATE, repeat, seconds=1.0, cpu_seconds=2.0),
            run(ContenderName.CONNECTOR, repeat, seconds=4.0, cpu_seconds=cpu_seconds + repeat),
            run(ContenderName.LIMIT, repeat, seconds=0.5, cpu_seconds=1.0),
        )
    ]
    report = make_report(ENVIRONMENT, CONNECTOR, QUICK, runs)
    against_connector, of_limit = report.goals
    assert against_connector.verdict is verdict
    assert of_limit.verdict is Verdict.MISSED
    assert of_limit.figures == ("data-source-lz4, Quorate against limit: 0.50",)
    assert report.comparisons[0].wall.median == 4.0
    assert report.comparisons[0].cpu.median == (cpu_seconds + 1) / 2
    assert f">= 3: {verdict}" in render(report)


@pytest.mark.parametrize(
    ("log_bytes", "partitions", "tasks"),
    [(1_000_000_000, 12, 24), (600_000_000, 12, 12), (4_000_000_000, 12, 60), (300_000_000, 12, 5), (1_000, 1000, 3)],
)
def test_the_limit_has_as_many_tasks_as_the_data_source(log_bytes: int, partitions: int, tasks: int) -> None:
    assert tasks_for(log_bytes, partitions) == tasks


def test_nothing_measured_is_no_goal_met() -> None:
    report = make_report(ENVIRONMENT, CONNECTOR, QUICK, [])
    assert {goal.verdict for goal in report.goals} == {Verdict.NOT_MEASURED}
