"""The results of the backup's benchmark: as JSON for programs, and as a Markdown page for people."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.backup.cases import BackupSettings, ContenderName
from benchmarks.backup.contender import Run
from benchmarks.backup.runner import IdleRun
from benchmarks.backup.summary import BackupGoal, Comparison, Figures, compare, judge, summarise
from benchmarks.report import Environment, save_page, table
from benchmarks.summary import NOISY_SHARE, Ratio

_STAND_IN_WARNING = (
    "**A stand-in for the Spark connector:** no connector of Spark's own version could be fetched, and parts of"
    " different versions may be slower than parts that belong together. What is met against it is not proven."
)


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    connector: str  # Its version, or why it was not measured.
    connector_is_stand_in: bool  # Not of the version of Spark, so not what was to be measured.
    settings: BackupSettings
    figures: list[Figures]
    comparisons: list[Comparison]
    goals: list[BackupGoal]
    runs: list[Run]
    idle_runs: list[IdleRun]


def make_report(
    environment: Environment,
    connector: str,
    *,
    connector_is_stand_in: bool,
    settings: BackupSettings,
    runs: Sequence[Run],
    idle_runs: Sequence[IdleRun],
) -> BackupReport:
    figures, comparisons = summarise(runs), compare(runs)
    return BackupReport(
        environment=environment,
        connector=connector,
        connector_is_stand_in=connector_is_stand_in,
        settings=settings,
        figures=figures,
        comparisons=comparisons,
        goals=judge(figures, comparisons, idle_runs),
        runs=list(runs),
        idle_runs=list(idle_runs),
    )


def save(report: BackupReport) -> Path:
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-backup", render(report))


def render(report: BackupReport) -> str:
    environment, settings = report.environment, report.settings
    lines = [
        f"# The backup of Quorate {environment.commit} beside its peers, {environment.date}",
        "",
        f"- Source: Apache Kafka {environment.apache_kafka} x 3, heap 1024 MiB each; {settings.records:,} records of"
        f" 1 KiB a topic over {settings.partitions} partitions, one replica, read from the page cache",
        f"- Spark connector: {report.connector}",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        f"- Python {environment.python}, {environment.java}",
        f"- {settings.repeats} repeats in turns, on sessions that were open and warm; medians, for memory the most",
        "",
        *(table(_figure_cells(report.figures)) if report.figures else []),
        "",
        "MB are of the brokers' logs, in all rows. CPU s are of all processes of a contender; the source's are those of"
        " the brokers, and for the limit those of the process that sends the files.",
        "",
        *(table(_comparison_cells(report.comparisons)) if report.comparisons else []),
        *_noise_lines(report.figures),
        "",
        *_idle_lines(report.idle_runs),
        "## Goals",
        "",
        *([_STAND_IN_WARNING, ""] if report.connector_is_stand_in else []),
        *(f"- {goal.text}: {goal.verdict}{_listed(goal.figures)}" for goal in report.goals),
    ]
    return "\n".join(lines) + "\n"


def _figure_cells(figures: Sequence[Figures]) -> list[list[str]]:
    header = ["case", "contender", "s", "MB/s", "CPU s", "MB/CPU s", "source CPU s", "stored MB", "stored/log"]
    header += ["task MB", "all MB", "other load"]
    return [header, *map(_figure_row, figures)]


def _figure_row(each: Figures) -> list[str]:
    return [
        each.case,
        each.contender,
        f"{each.seconds:.2f}",
        f"{each.megabytes_per_second:,.0f}",
        f"{each.cpu_seconds:.2f}",
        f"{each.megabytes_per_cpu_second:,.0f}",
        f"{each.source_cpu_seconds:.2f}",
        f"{each.stored_bytes / 1e6:,.0f}",
        f"{each.stored_share:.2f}",
        "" if each.peak_task_memory_bytes is None else f"{each.peak_task_memory_bytes / 1e6:.0f}",
        f"{each.peak_tree_memory_bytes / 1e6:,.0f}",
        f"{each.other_share:.2f}",
    ]


def _comparison_cells(comparisons: Sequence[Comparison]) -> list[list[str]]:
    header = ["case", "of", "against", "wall ratio", "spread", "CPU ratio", "spread", "CPU ratio with source"]
    return [
        header,
        *(
            [
                each.case,
                each.ours,
                "the limit" if each.contender is ContenderName.LIMIT else f"the {each.contender}",
                f"{each.wall.median:.2f}",
                _spread(each.wall),
                f"{each.cpu.median:.2f}",
                _spread(each.cpu),
                f"{each.cpu_with_source.median:.2f}",
            ]
            for each in comparisons
        ),
    ]


def _spread(ratio: Ratio) -> str:
    return f"{ratio.lowest:.2f} to {ratio.highest:.2f}"


def _noise_lines(figures: Sequence[Figures]) -> list[str]:
    noisy = [each.other_share for each in figures if each.is_noisy]
    if not noisy:
        return []
    return [
        "",
        f"**A busy machine:** in {len(noisy)} rows other processes took more than {NOISY_SHARE} of a core, at most"
        f" {max(noisy):.1f}. Such ratios are an indication, not a result; run again when it is quiet.",
    ]


def _idle_lines(runs: Sequence[IdleRun]) -> list[str]:
    return [
        *(
            f"- {each.partitions:,} partitions, {each.new_records} new records, {'first' if each.is_first else 'later'}"
            f" run: {each.seconds:.2f} s, {each.milliseconds_per_partition:.2f} ms a partition"
            for each in runs
        ),
        "",
    ]


def _listed(figures: Sequence[str]) -> str:
    return f" ({'; '.join(figures)})" if figures else ""
