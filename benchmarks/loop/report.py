"""The results of the event loop's benchmark: as JSON for programs, and as a Markdown page for people."""

from pathlib import Path

import msgspec

from benchmarks.loop.cases import HOLD, MAX_ANSWER_MS, LoopSettings, Outcome
from benchmarks.report import Environment, save_page, table


class LoopReport(msgspec.Struct, frozen=True, kw_only=True):
    environment: Environment
    settings: LoopSettings
    outcomes: list[Outcome]
    #: Lines of the nodes that name what held their loops.
    held_by: list[str]


def save(report: LoopReport) -> Path:
    return save_page(report, f"{report.environment.date}-{report.environment.commit}-loop", render(report))


def render(report: LoopReport) -> str:
    environment, settings = report.environment, report.settings
    header = ["case", "worst answer ms", "median ms", "seconds", "elections", "fencings", "growth MiB", "holds", "met"]
    lines = [
        f"# What one client costs the others: three nodes of Quorate {environment.commit}, {environment.date}",
        "",
        f"- Machine: {environment.cores} cores for all nodes and clients, {environment.processor},"
        f" Linux {environment.kernel}, Python {environment.python}",
        f"- {settings.partitions:,} partitions of 3 replicas, {settings.topics:,} topics in one request",
        f"- Goal: every answer to a client that looks on within {MAX_ANSWER_MS:.0f} ms, no election, no fencing",
        "",
        *table([header, *map(_cells, report.outcomes)]),
        *(["", "What nodes named as holding their loops:", ""] if report.held_by else []),
        *(f"- `{line[line.index(HOLD) :]}`" for line in report.held_by),
    ]
    return "\n".join(lines) + "\n"


def _cells(outcome: Outcome) -> list[str]:
    return [
        outcome.case,
        f"{outcome.worst_answer_ms:,.0f}",
        f"{outcome.median_answer_ms:.1f}",
        f"{outcome.seconds:.1f}",
        str(outcome.elections),
        str(outcome.fencings),
        f"{outcome.growth_mib:,.0f}",
        str(outcome.holds),
        "yes" if outcome.is_met else "no",
    ]
