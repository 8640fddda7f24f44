"""The parts of a page that every benchmark with contenders has: figures, ratios, noise, goals. Pure."""

from collections.abc import Sequence

from benchmarks.contenders.contender import Run
from benchmarks.contenders.summary import Comparison, ContenderGoal, Figures
from benchmarks.report import table
from benchmarks.summary import NOISY_SHARE, Ratio

STAND_IN_WARNING = (
    "**A stand-in for the Spark connector:** no connector of Spark's own version could be fetched, and parts of"
    " different versions may be slower than parts that belong together. What is met against it is not proven."
)


def figure_table(figures: Sequence[Figures], *, cluster: str, stored: str) -> list[str]:
    """``cluster`` names what the contenders talk to, ``stored`` what lies in their folders."""
    header = ["case", "contender", "s", "MB/s", "CPU s", "MB/CPU s", f"{cluster} CPU s", f"{stored} MB"]
    header += [f"{stored}/log", "task MB", "all MB", "other load"]
    return table([header, *map(_figure_row, figures)]) if figures else []


def comparison_table(comparisons: Sequence[Comparison], *, cluster: str) -> list[str]:
    header = ["case", "of", "against", "wall ratio", "spread", "CPU ratio", "spread", f"CPU ratio with {cluster}"]
    return table([header, *map(_comparison_row, comparisons)]) if comparisons else []


def noise_lines(figures: Sequence[Figures]) -> list[str]:
    noisy = [each.other_share for each in figures if each.is_noisy]
    if not noisy:
        return []
    return [
        "",
        f"**A busy machine:** in {len(noisy)} rows other processes took more than {NOISY_SHARE} of a core, at most"
        f" {max(noisy):.1f}. Such ratios are an indication, not a result; run again when it is quiet.",
    ]


def uncounted_lines(runs: Sequence[Run]) -> list[str]:
    """A warning where CPU seconds are not all that there were."""
    if all(run.counts_ended_processes for run in runs):
        return []
    return [
        "",
        "**CPU seconds are too low:** this user may make no control groups, so those of Spark's Python workers that"
        " have ended are not counted. Ratios per CPU second are no results.",
    ]


def goal_lines(goals: Sequence[ContenderGoal], *, connector_is_stand_in: bool) -> list[str]:
    return [
        "## Goals",
        "",
        *([STAND_IN_WARNING, ""] if connector_is_stand_in else []),
        *(f"- {goal.text}: {goal.verdict}{_listed(goal.figures)}" for goal in goals),
    ]


def _figure_row(each: Figures) -> list[str]:
    return [
        each.case,
        each.contender,
        f"{each.seconds:.2f}",
        f"{each.megabytes_per_second:,.0f}",
        f"{each.cpu_seconds:.2f}",
        f"{each.megabytes_per_cpu_second:,.0f}",
        f"{each.cluster_cpu_seconds:.2f}",
        f"{each.stored_bytes / 1e6:,.0f}",
        f"{each.stored_share:.2f}",
        "" if each.peak_task_memory_bytes is None else f"{each.peak_task_memory_bytes / 1e6:.0f}",
        f"{each.peak_tree_memory_bytes / 1e6:,.0f}",
        f"{each.other_share:.2f}",
    ]


def _comparison_row(each: Comparison) -> list[str]:
    return [
        each.case,
        each.ours,
        f"the {each.contender}",
        f"{each.wall.median:.2f}",
        _spread(each.wall),
        f"{each.cpu.median:.2f}",
        _spread(each.cpu),
        f"{each.cpu_with_cluster.median:.2f}",
    ]


def _spread(ratio: Ratio) -> str:
    return f"{ratio.lowest:.2f} to {ratio.highest:.2f}"


def _listed(figures: Sequence[str]) -> str:
    return f" ({'; '.join(figures)})" if figures else ""
