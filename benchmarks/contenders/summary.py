"""From runs to figures, ratios and verdicts. Pure."""

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from benchmarks.contenders.contender import Run
from benchmarks.contenders.names import ContenderName
from benchmarks.summary import NOISY_SHARE, Ratio, Verdict


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Medians over the repeats of one contender in one case; for memory the most."""

    case: str
    contender: ContenderName
    seconds: float
    megabytes_per_second: float
    cpu_seconds: float
    megabytes_per_cpu_second: float
    cluster_cpu_seconds: float
    stored_bytes: int
    stored_share: float  # Of the bytes in the brokers' logs.
    peak_task_memory_bytes: int | None
    peak_tree_memory_bytes: int
    other_share: float  # The largest share of a core that anything else on the machine took.

    @property
    def is_noisy(self) -> bool:
        return self.other_share > NOISY_SHARE


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Quorate against one contender: how many times as fast, and how many times as much in a CPU second."""

    case: str
    ours: ContenderName
    contender: ContenderName
    wall: Ratio
    cpu: Ratio
    cpu_with_cluster: Ratio


class ContenderGoal(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    verdict: Verdict
    figures: tuple[str, ...] = ()


def summarise(runs: Sequence[Run]) -> list[Figures]:
    groups: dict[tuple[str, ContenderName], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.case, run.contender), []).append(run)
    return [_figures(group) for group in groups.values()]


def compare(runs: Sequence[Run]) -> list[Comparison]:
    """Of runs of the same repeat, so of runs that followed each other."""
    cases = list(dict.fromkeys(run.case for run in runs))
    return [
        _comparison(pairs)
        for case in cases
        for ours in ContenderName
        for theirs in ContenderName
        if ours.is_ours and not theirs.is_ours
        if (pairs := _pairs([run for run in runs if run.case == case], ours, theirs))
    ]


def _figures(runs: Sequence[Run]) -> Figures:
    def middle(value: Callable[[Run], float]) -> float:
        return median(map(value, runs))

    task_peaks = [run.peak_task_memory_bytes for run in runs if run.peak_task_memory_bytes is not None]
    return Figures(
        case=runs[0].case,
        contender=runs[0].contender,
        seconds=middle(lambda run: run.seconds),
        megabytes_per_second=middle(lambda run: run.megabytes_per_second),
        cpu_seconds=middle(lambda run: run.cpu_seconds),
        megabytes_per_cpu_second=middle(lambda run: run.megabytes_per_cpu_second),
        cluster_cpu_seconds=middle(lambda run: run.cluster_cpu_seconds),
        stored_bytes=int(middle(lambda run: run.stored_bytes)),
        stored_share=middle(lambda run: run.stored_bytes / run.log_bytes),
        peak_task_memory_bytes=max(task_peaks, default=None),
        peak_tree_memory_bytes=max(run.peak_tree_memory_bytes for run in runs),
        other_share=max(run.other_cpu_seconds / run.seconds for run in runs),
    )


def _pairs(runs: Sequence[Run], ours: ContenderName, theirs: ContenderName) -> list[tuple[Run, Run]]:
    by_repeat = {run.repeat: run for run in runs if run.contender is ours}
    return [(by_repeat[run.repeat], run) for run in runs if run.contender is theirs and run.repeat in by_repeat]


def _comparison(pairs: Sequence[tuple[Run, Run]]) -> Comparison:
    def ratio(cost: Callable[[Run], float]) -> Ratio:
        ratios = [cost(theirs) / cost(ours) for ours, theirs in pairs]
        return Ratio(median=median(ratios), lowest=min(ratios), highest=max(ratios))

    return Comparison(
        case=pairs[0][1].case,
        ours=pairs[0][0].contender,
        contender=pairs[0][1].contender,
        wall=ratio(lambda run: run.seconds),
        cpu=ratio(lambda run: run.cpu_seconds),
        cpu_with_cluster=ratio(lambda run: run.cpu_seconds + run.cluster_cpu_seconds),
    )
