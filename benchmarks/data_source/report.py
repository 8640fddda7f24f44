"""The results of the data source's benchmark: figures and ratios, as JSON for programs and as a page for people."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Run
from benchmarks.contenders.goals import DATA_SOURCE_GOALS, judge_all
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import describe
from benchmarks.contenders.summary import Comparison, ContenderGoal, compare
from benchmarks.contenders.tables import comparison_table, goal_lines, uncounted_lines
from benchmarks.data_source.cases import ReadSettings
from benchmarks.report import Environment, save_page, table
from benchmarks.summary import NOISY_SHARE


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    connector: str
    connector_is_stand_in: bool
    settings: ReadSettings
    comparisons: list[Comparison]
    goals: list[ContenderGoal]
    runs: list[Run]


def make_report(
    environment: Environment, connector: Connector, settings: ReadSettings, runs: Sequence[Run]
) -> ReadReport:
    comparisons = compare(runs)
    return ReadReport(
        environment=environment,
        connector=connector.description,
        connector_is_stand_in=not connector.is_of_spark_version,
        settings=settings,
        comparisons=comparisons,
        goals=judge_all(DATA_SOURCE_GOALS, comparisons),
        runs=list(runs),
    )


def save(report: ReadReport) -> Path:
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-data-source", render(report))


def render(report: ReadReport) -> str:
    environment, settings = report.environment, report.settings
    noise = max((run.other_cpu_seconds / run.seconds for run in report.runs), default=0.0)
    lines = [
        f"# The data source of Quorate {environment.commit} beside Spark's Kafka connector, {environment.date}",
        "",
        f"- Source: Apache Kafka {environment.apache_kafka} x 3, read from the page cache, all columns, into Spark's"
        " noop sink",
        *describe(settings.sizes),
        f"- Spark connector: {report.connector}",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        "- Limit: a data source in Python that sends as many rows to the same sink, as Arrow batches that are ready",
        f"- {settings.repeats} repeats in turns, on sessions that were open and warm; medians, for memory the most",
        "",
        *table(_figure_cells(report.runs)),
        "",
        *comparison_table(report.comparisons, cluster="source"),
        "",
        *([f"**A busy machine:** others took up to {noise:.1f} cores.", ""] if noise > NOISY_SHARE else []),
        *uncounted_lines(report.runs),
        "",
        *goal_lines(report.goals, connector_is_stand_in=report.connector_is_stand_in),
    ]
    return "\n".join(lines) + "\n"


def _figure_cells(runs: Sequence[Run]) -> list[list[str]]:
    header = ["case", "contender", "s", "rows/s", "CPU s", "rows/CPU s", "source CPU s", "all MB"]
    groups: dict[tuple[str, ContenderName], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.case, run.contender), []).append(run)
    return [header, *(_figure_row(group) for group in groups.values())]


def _figure_row(runs: Sequence[Run]) -> list[str]:
    def middle(value: Callable[[Run], float]) -> float:
        return median(map(value, runs))

    return [
        runs[0].case,
        runs[0].contender,
        f"{middle(lambda run: run.seconds):.2f}",
        f"{middle(lambda run: run.records / run.seconds):,.0f}",
        f"{middle(lambda run: run.cpu_seconds):.2f}",
        f"{middle(lambda run: run.records / run.cpu_seconds):,.0f}",
        f"{middle(lambda run: run.cluster_cpu_seconds):.2f}",
        f"{max(run.peak_tree_memory_bytes for run in runs) / 1e6:,.0f}",
    ]
