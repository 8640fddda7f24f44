"""The results of the backup's benchmark: as JSON for programs, and as a Markdown page for people."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.backup.cases import BackupSettings
from benchmarks.backup.runner import IdleRun
from benchmarks.backup.summary import judge
from benchmarks.contenders.contender import Run
from benchmarks.contenders.shapes import describe
from benchmarks.contenders.summary import Comparison, ContenderGoal, Figures, compare, summarise
from benchmarks.contenders.tables import comparison_table, figure_table, goal_lines, noise_lines, uncounted_lines
from benchmarks.report import Environment, save_page


class BackupReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    connector: str  # Its version, or why it was not measured.
    kafka_backup: str  # The same of it.
    connector_is_stand_in: bool  # Not of the version of Spark, so not what was to be measured.
    settings: BackupSettings
    figures: list[Figures]
    comparisons: list[Comparison]
    goals: list[ContenderGoal]
    runs: list[Run]
    idle_runs: list[IdleRun]


def make_report(
    environment: Environment,
    connector: str,
    *,
    kafka_backup: str = "",
    connector_is_stand_in: bool,
    settings: BackupSettings,
    runs: Sequence[Run],
    idle_runs: Sequence[IdleRun],
) -> BackupReport:
    figures, comparisons = summarise(runs), compare(runs)
    return BackupReport(
        environment=environment,
        connector=connector,
        kafka_backup=kafka_backup,
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
        f"- Source: Apache Kafka {environment.apache_kafka} x 3, heap 1024 MiB each; one replica, read from the page"
        " cache",
        *describe(settings.sizes),
        f"- Spark connector: {report.connector}",
        f"- kafka-backup: {report.kafka_backup}",
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        f"- Python {environment.python}, {environment.java}",
        f"- {settings.repeats} repeats in turns, on sessions that were open and warm; medians, for memory the most",
        "",
        *figure_table(report.figures, cluster="source", stored="stored"),
        "",
        "MB are of the brokers' logs, in all rows. CPU s are of all processes of a contender; the source's are those of"
        " the brokers, and for the limits those of the process that sends the files.",
        "",
        *comparison_table(report.comparisons, cluster="source"),
        *noise_lines(report.figures),
        *uncounted_lines(report.runs),
        "",
        *_idle_lines(report.idle_runs),
        *goal_lines(report.goals, connector_is_stand_in=report.connector_is_stand_in),
    ]
    return "\n".join(lines) + "\n"


def _idle_lines(runs: Sequence[IdleRun]) -> list[str]:
    return [
        *(
            f"- {each.partitions:,} partitions, {each.new_records} new records, {'first' if each.is_first else 'later'}"
            f" run: {each.seconds:.2f} s, {each.milliseconds_per_partition:.2f} ms a partition"
            for each in runs
        ),
        "",
    ]
