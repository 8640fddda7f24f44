"""The results of the restore's benchmark: as JSON for programs, and as a Markdown page for people."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.contenders.contender import Run
from benchmarks.contenders.goals import RESTORE_GOALS, judge_all
from benchmarks.contenders.shapes import describe
from benchmarks.contenders.summary import Comparison, ContenderGoal, Figures, compare, summarise
from benchmarks.contenders.tables import comparison_table, figure_table, goal_lines, noise_lines, uncounted_lines
from benchmarks.report import Environment, save_page
from benchmarks.restore.cases import RestoreSettings


class RestoreReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    connector: str  # Its version, or why it was not measured.
    kafka_backup: str  # The same of it.
    connector_is_stand_in: bool  # Not of the version of Spark, so not what was to be measured.
    settings: RestoreSettings
    figures: list[Figures]
    comparisons: list[Comparison]
    goals: list[ContenderGoal]
    runs: list[Run]


def make_report(
    environment: Environment,
    connector: str,
    *,
    kafka_backup: str = "",
    connector_is_stand_in: bool,
    settings: RestoreSettings,
    runs: Sequence[Run],
) -> RestoreReport:
    comparisons = compare(runs)
    return RestoreReport(
        environment=environment,
        connector=connector,
        kafka_backup=kafka_backup,
        connector_is_stand_in=connector_is_stand_in,
        settings=settings,
        figures=summarise(runs),
        comparisons=comparisons,
        goals=judge_all(RESTORE_GOALS, comparisons),
        runs=list(runs),
    )


def save(report: RestoreReport, part: str) -> Path:
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-{part}", render(report))


def render(report: RestoreReport) -> str:
    environment, settings = report.environment, report.settings
    lines = [
        f"# The restore of Quorate {environment.commit} beside its peers, {environment.date}",
        "",
        *describe(settings.sizes),
        "- What contenders read comes from the page cache",
        "- `restore-cluster-…`: into Quorate x 3, one replica, durability `os`",
        "- `restore-sink-…`: into one node that takes every batch and keeps none, so that what is measured is the work"
        " of the contenders",
        f"- Spark connector: {report.connector}",
        f"- kafka-backup: {report.kafka_backup}",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        f"- Python {environment.python}" + (f", {environment.java}" if environment.java else ""),
        f"- {settings.repeats} repeats in turns, on sessions that were open and warm, but for the whole command;"
        " medians, for memory the most",
        "",
        *figure_table(report.figures, cluster="target", stored="read"),
        "",
        "MB are of the source's logs, in all rows. CPU s are of all processes of a contender; the target's stand beside"
        " them.",
        "",
        *comparison_table(report.comparisons, cluster="target"),
        *noise_lines(report.figures),
        *uncounted_lines(report.runs),
        "",
        *goal_lines(report.goals, connector_is_stand_in=report.connector_is_stand_in),
    ]
    return "\n".join(lines) + "\n"
