"""The results of the cluster's benchmark: as JSON for programs, and as a Markdown page for people."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from benchmarks.cluster.cases import ClusterSettings, Part
from benchmarks.cluster.failover import Round
from benchmarks.cluster.summary import ClusterGoal, FailoverRow, judge_cluster, summarise_failover
from benchmarks.report import Environment, noise_lines, row_table, save_page, table
from benchmarks.samples import Sample
from benchmarks.summary import Row, summarise


class ClusterReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    settings: ClusterSettings
    parts: list[Part]
    # Why a fault or a client was left out.
    left_out: list[str]
    rows: list[Row]
    failover: list[FailoverRow]
    goals: list[ClusterGoal]
    samples: list[Sample]
    rounds: list[Round]


def make_report(
    environment: Environment,
    settings: ClusterSettings,
    parts: Sequence[Part],
    *,
    left_out: Sequence[str],
    samples: Sequence[Sample],
    rounds: Sequence[Round],
) -> ClusterReport:
    rows, failover = summarise(samples), summarise_failover(rounds)
    return ClusterReport(
        environment=environment,
        settings=settings,
        parts=list(parts),
        left_out=list(left_out),
        rows=rows,
        failover=failover,
        goals=judge_cluster(rows, failover),
        samples=list(samples),
        rounds=list(rounds),
    )


def save(report: ClusterReport) -> Path:
    """Under a name that tells which parts are in it."""
    name = "cluster" if report.parts == list(Part) else "-".join(report.parts)
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-{name}", render(report))


def render(report: ClusterReport) -> str:
    environment, settings = report.environment, report.settings
    peer = environment.apache_kafka or f"not measured: {environment.without_apache_kafka}"
    lines = [
        f"# A cluster of three Quorate {environment.commit} beside one of Apache Kafka, {environment.date}",
        "",
        f"- Apache Kafka: {peer}"
        + (f" x 3, heap {environment.apache_kafka_heap_mb} MiB each" if environment.java else ""),
        f"- Machine: {environment.cores} cores for all nodes and the load, {environment.processor},"
        f" Linux {environment.kernel}",
        f"- Python {environment.python}" + (f", {environment.java}" if environment.java else ""),
        f"- {settings.repeats} repeats in turns; ratio = Quorate / Apache Kafka, median, lowest and highest",
        f"- Topics: {settings.topics:,} with 3 partitions of 3 replicas",
        *(f"- Left out: {reason}" for reason in report.left_out),
        "",
        *(row_table(report.rows) if report.rows else []),
        *noise_lines(report.rows),
        "",
        *(_failover_lines(report.failover) if report.failover else []),
        "## Goals",
        "",
        *(f"- {goal.text}: {goal.verdict}{_listed(goal.figures)}" for goal in report.goals),
    ]
    return "\n".join(lines) + "\n"


def _failover_lines(rows: Sequence[FailoverRow]) -> list[str]:
    header = ["fault", "system", "next write by", "p50 ms", "p99 ms", "longest ms", "own waiting ms", "rounds", "none"]
    return [
        "## Failover",
        "",
        "From the fault to the next acknowledged write. The cluster alone is a plain connection that asks and tries",
        "again every 2 ms; own waiting is the median of what a client took longer than that. `none`: rounds in which",
        "a client had no acknowledgement within the limit, as its own timeout for requests in flight was not over.",
        "",
        *table([header, *map(_failover_cells, rows)]),
        "",
    ]


def _failover_cells(row: FailoverRow) -> list[str]:
    times = row.times
    return [
        row.fault,
        row.system,
        row.writer,
        *(["", "", ""] if times is None else [f"{each:,.0f}" for each in (times.p50, times.p99, times.longest)]),
        "" if row.own_waiting_ms is None else f"{row.own_waiting_ms:,.0f}",
        str(row.rounds),
        str(row.without) if row.without else "",
    ]


def _listed(figures: Sequence[str]) -> str:
    return f" ({'; '.join(figures)})" if figures else ""
