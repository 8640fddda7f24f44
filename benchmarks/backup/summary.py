"""What the backup is held to: ratios, a task's memory, the time of idle partitions. Pure."""

from collections.abc import Sequence

from benchmarks.backup.cases import (
    IDLE_PARTITIONS,
    MAX_IDLE_PARTITION_MS,
    MAX_TASK_MEMORY_BYTES,
)
from benchmarks.backup.runner import IdleRun
from benchmarks.contenders.goals import BACKUP_GOALS, judge_all, judged
from benchmarks.contenders.summary import Comparison, ContenderGoal, Figures


def judge(
    figures: Sequence[Figures], comparisons: Sequence[Comparison], idle_runs: Sequence[IdleRun]
) -> list[ContenderGoal]:
    return [
        *judge_all(BACKUP_GOALS, comparisons),
        _memory_goal([each for each in figures if each.contender.is_ours]),
        _idle_goal(idle_runs),
    ]


def _memory_goal(figures: Sequence[Figures]) -> ContenderGoal:
    peaks = {f"{each.case}, {each.contender}": each.peak_task_memory_bytes or 0 for each in figures}
    outcomes = {f"{what}: {peak / 1e6:.0f} MB": peak <= MAX_TASK_MEMORY_BYTES for what, peak in peaks.items()}
    return judged(f"a task's peak memory: <= {MAX_TASK_MEMORY_BYTES / 1e6:.0f} MB", outcomes)


def _idle_goal(idle_runs: Sequence[IdleRun]) -> ContenderGoal:
    outcomes = {
        f"{'first run' if each.is_first else 'later run'} {each.milliseconds_per_partition:.2f} ms": (
            each.milliseconds_per_partition < MAX_IDLE_PARTITION_MS
        )
        for each in idle_runs
    }
    return judged(f"{IDLE_PARTITIONS}: < {MAX_IDLE_PARTITION_MS:.0f} ms each", outcomes)
