"""The results of the data source's benchmark: figures and ratios, as JSON for programs and as a page for people."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import msgspec

from benchmarks.contenders.connector_jars import Connector
from benchmarks.contenders.contender import Run
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.tables import uncounted_lines
from benchmarks.data_source.cases import MIN_RATIO_PER_CPU_SECOND, ReadSettings
from benchmarks.report import Environment, save_page, table
from benchmarks.summary import NOISY_SHARE, Ratio, Verdict


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as many rows as the connector: in a second, and in a CPU second."""

    case: str
    wall: Ratio
    cpu: Ratio
    #: What a data source in Python would reach that had nothing to do.
    limit_cpu: Ratio


class ReadReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    connector: str
    connector_is_stand_in: bool
    settings: ReadSettings
    comparisons: list[Comparison]
    verdict: Verdict
    runs: list[Run]


def make_report(
    environment: Environment, connector: Connector, settings: ReadSettings, runs: Sequence[Run]
) -> ReadReport:
    comparisons = [_compare(case, runs) for case in dict.fromkeys(run.case for run in runs)]
    return ReadReport(
        environment=environment,
        connector=connector.description,
        connector_is_stand_in=not connector.is_of_spark_version,
        settings=settings,
        comparisons=comparisons,
        verdict=_judge(comparisons),
        runs=list(runs),
    )


def _judge(comparisons: Sequence[Comparison]) -> Verdict:
    if not comparisons:
        return Verdict.NOT_MEASURED
    is_met = all(each.cpu.median >= MIN_RATIO_PER_CPU_SECOND for each in comparisons)
    return Verdict.MET if is_met else Verdict.MISSED


def save(report: ReadReport) -> Path:
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-data-source", render(report))


def render(report: ReadReport) -> str:
    environment, settings = report.environment, report.settings
    noise = max((run.other_cpu_seconds / run.seconds for run in report.runs), default=0.0)
    lines = [
        f"# The data source of Quorate {environment.commit} beside Spark's Kafka connector, {environment.date}",
        "",
        f"- Source: Apache Kafka {environment.apache_kafka} x 3; {settings.records:,} records of 1 KiB a topic over"
        f" {settings.partitions} partitions, read from the page cache, all columns, into Spark's noop sink",
        f"- Spark connector: {report.connector}",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        "- Limit: a data source in Python that sends as many rows to the same sink, as Arrow batches that are ready",
        f"- {settings.repeats} repeats in turns, on sessions that were open and warm; medians, for memory the most",
        "",
        *table(_figure_cells(report.runs)),
        "",
        *table(_comparison_cells(report.comparisons)),
        "",
        *([f"**A busy machine:** others took up to {noise:.1f} cores.", ""] if noise > NOISY_SHARE else []),
        *uncounted_lines(report.runs),
        *(["**A stand-in for the connector:** it is not of Spark's version.", ""] * report.connector_is_stand_in),
        f"- rows per CPU second, against the connector: >= {MIN_RATIO_PER_CPU_SECOND}: {report.verdict}",
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


def _compare(case: str, runs: Sequence[Run]) -> Comparison:
    def ratio(contender: ContenderName, cost: Callable[[Run], float]) -> Ratio:
        """Of runs of the same repeat, so of runs that followed each other."""
        theirs = _by_repeat(case, ContenderName.CONNECTOR, runs)
        ratios = [cost(theirs[repeat]) / cost(run) for repeat, run in _by_repeat(case, contender, runs).items()]
        return Ratio(median=median(ratios), lowest=min(ratios), highest=max(ratios))

    return Comparison(
        case=case,
        wall=ratio(ContenderName.QUORATE, lambda run: run.seconds),
        cpu=ratio(ContenderName.QUORATE, lambda run: run.cpu_seconds),
        limit_cpu=ratio(ContenderName.LIMIT, lambda run: run.cpu_seconds),
    )


def _by_repeat(case: str, contender: ContenderName, runs: Sequence[Run]) -> dict[int, Run]:
    return {run.repeat: run for run in runs if run.case == case and run.contender is contender}


def _comparison_cells(comparisons: Sequence[Comparison]) -> list[list[str]]:
    return [
        ["case", "rows/s ratio", "spread", "rows/CPU s ratio", "spread", "limit's", "spread"],
        *([each.case, *_cells(each.wall), *_cells(each.cpu), *_cells(each.limit_cpu)] for each in comparisons),
    ]


def _cells(ratio: Ratio) -> list[str]:
    return [f"{ratio.median:.2f}", f"{ratio.lowest:.2f} to {ratio.highest:.2f}"]
