"""A run's results: as JSON for programs and later comparison, and as a Markdown page for people."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

import msgspec

from benchmarks.cases import COMPILING, Unit
from benchmarks.runner import Settings
from benchmarks.samples import Sample
from benchmarks.streams import TLS_CIPHER, TLS_VERSION
from benchmarks.summary import (
    MIN_SHARE_OF_LIMIT,
    NOISY_SHARE,
    GoalResult,
    Ratio,
    Row,
    is_cold,
    judge,
    summarise,
)

RESULTS = Path(__file__).parent / "results"
CHECKOUT = Path(__file__).parent.parent


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Where and what: figures from different environments must not be compared."""

    date: str
    commit: str
    cores: int
    processor: str
    kernel: str
    python: str
    java: str | None
    # None where only Quorate was measured; the text then says why.
    apache_kafka: str | None
    without_apache_kafka: str | None
    apache_kafka_heap_mb: int


class Report(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    settings: Settings
    rows: list[Row]
    goals: list[GoalResult]
    samples: list[Sample]


def make_report(environment: Environment, settings: Settings, samples: Sequence[Sample]) -> Report:
    rows = summarise(samples)
    return Report(environment=environment, settings=settings, rows=rows, goals=judge(rows), samples=list(samples))


def describe_environment(
    apache_kafka: str | None, without_apache_kafka: str | None, apache_kafka_heap_mb: int
) -> Environment:
    return Environment(
        date=datetime.now(UTC).strftime("%Y-%m-%d"),
        commit=_commit(),
        cores=os.cpu_count() or 1,
        processor=_processor(),
        kernel=platform.release(),
        python=platform.python_version(),
        java=_first_output_line("java", "-version") if apache_kafka else None,
        apache_kafka=apache_kafka,
        without_apache_kafka=without_apache_kafka,
        apache_kafka_heap_mb=apache_kafka_heap_mb,
    )


def save(report: Report) -> Path:
    """Keep both forms; returns the path of the page."""
    return save_page(report, f"{report.environment.date}-{report.environment.commit}", render(report))


def save_page(report: object, stem: str, text: str) -> Path:
    """What an earlier run of the same commit has found stays."""
    RESULTS.mkdir(exist_ok=True)
    names = chain((stem,), (f"{stem}-{run}" for run in count(2)))
    stem = next(name for name in names if not (RESULTS / f"{name}.md").exists())
    (RESULTS / f"{stem}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    page = RESULTS / f"{stem}.md"
    page.write_text(text)
    return page


def render(report: Report) -> str:
    environment, settings = report.environment, report.settings
    peer = environment.apache_kafka or f"not measured: {environment.without_apache_kafka}"
    lines = [
        f"# Quorate {environment.commit} beside Apache Kafka, {environment.date}",
        "",
        f"- Apache Kafka: {peer}" + (f", heap {environment.apache_kafka_heap_mb} MiB" if environment.java else ""),
        f"- Machine: {environment.cores} cores, {environment.processor}, Linux {environment.kernel}",
        f"- Python {environment.python}" + (f", {environment.java}" if environment.java else ""),
        f"- {settings.repeats} repeats in turns, {settings.judged_repeats} where a goal is about a transfer; "
        "ratio = Quorate / Apache Kafka, median, lowest and highest",
        f"- Rows with `tls`: {TLS_VERSION}, {TLS_CIPHER}, in both systems",
        "",
        *row_table(report.rows),
        "",
        "\\* the client took more than 85 % of a core: it may have been what held the row up.",
        *limit_table(report.rows),
        *noise_lines(report.rows),
        "",
        *_goal_lines(report.goals),
    ]
    return "\n".join(lines) + "\n"


def noise_lines(rows: Sequence[Row]) -> list[str]:
    lines = []
    # Other work does not slow both alike: a system with more threads gets more of a contended machine.
    if noisy := [row.other_share or 0.0 for row in rows if row.is_noisy]:
        lines += [
            "",
            f"**A busy machine:** in {len(noisy)} rows other processes took more than {NOISY_SHARE} of a core, at most"
            f" {max(noisy):.1f}. Such ratios are an indication, not a result; run again when it is quiet.",
        ]
    if compiling := [row.apache_kafka or 0.0 for row in rows if row.measure.startswith(COMPILING) and is_cold(row)]:
        lines += [
            "",
            f"**Not warm:** Apache Kafka still spent {max(compiling):.0%} of its CPU time on compiling when timing"
            " began, so it may be faster than shown.",
        ]
    return lines


def limit_table(rows: Sequence[Row]) -> list[str]:
    """Of the rows that have a limit beside them; nothing where there is none."""
    limited = [row for row in rows if row.limit is not None and row.unit.more_is_better]
    if not limited:
        return []
    header = ["measure", "durability", "unit", "limit", "Quorate / limit", "spread", "limit / Apache Kafka", "spread"]
    return [
        "",
        *table([header, *(_limit_cells(row) for row in limited)]),
        "",
        "The limit is a program on the same Python, `ssl` and event loop that takes the same load, decrypts it, writes"
        " the batches to files and answers: it has nothing else to do. Where it misses a goal itself, a row that"
        f" reaches {MIN_SHARE_OF_LIMIT} of it counts as met.",
    ]


def _limit_cells(row: Row) -> list[str]:
    return [
        f"limit-{row.measure}" + (" \\*" if row.limit_is_generator_bound else ""),
        row.durability,
        row.unit,
        _figure(row.limit),
        *_ratio_cells(row.ratio_to_limit),
        *_ratio_cells(row.ratio_of_limit),
    ]


def _ratio_cells(ratio: Ratio | None) -> list[str]:
    if ratio is None:
        return ["", ""]
    return [f"{ratio.median:.2f}", f"{ratio.lowest:.2f} to {ratio.highest:.2f}"]


def row_table(rows: Sequence[Row]) -> list[str]:
    header = ["measure", "durability", "unit", "Quorate", "Apache Kafka", "ratio", "spread", "CPU ratio", "other load"]
    return table([header, *(_row_cells(row) for row in rows)])


def _row_cells(row: Row) -> list[str]:
    better = "" if row.unit.more_is_better or row.unit is Unit.SHARE else " (less is better)"
    return [
        row.measure + (" \\*" if row.generator_bound else ""),
        row.durability,
        row.unit + better,
        _figure(row.quorate),
        _figure(row.apache_kafka),
        *_ratio_cells(row.ratio),
        "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
        "" if row.other_share is None else f"{row.other_share:.2f}",
    ]


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    if value < 0.1:
        return f"{value:.3g}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def table(cells: Sequence[Sequence[str]]) -> list[str]:
    """Markdown whose columns also line up on a terminal."""
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in cells
    ]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return [lines[0], rule, *lines[1:]]


def _goal_lines(goals: Sequence[GoalResult]) -> list[str]:
    lines = ["## Goals", ""]
    for result in goals:
        worst = "" if result.worst_ratio is None else f" (worst {result.worst_ratio:.2f})"
        busy = ", on a busy machine" if result.on_a_busy_machine else ""
        missed = f": {', '.join(result.missed_by)}" if result.missed_by else ""
        at_limit = f"; at the limit, which misses it too: {', '.join(result.at_limit)}" if result.at_limit else ""
        lines.append(f"- {result.goal.text}: {result.verdict}{worst}{busy}{missed}{at_limit}")
    return lines


def _commit() -> str:
    commit = _git("rev-parse", "--short", "HEAD") or "unknown"
    return f"{commit}-changed" if _git("status", "--porcelain", "src") else commit


def _git(*arguments: str) -> str:
    outcome = subprocess.run(["git", "-C", str(CHECKOUT), *arguments], capture_output=True, text=True, check=False)
    return outcome.stdout.strip()


def _first_output_line(*command: str) -> str:
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    return (outcome.stdout + outcome.stderr).strip().splitlines()[0]


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
