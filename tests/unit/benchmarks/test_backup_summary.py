"""Ratios and verdicts of the backup's benchmark: of runs of the same repeat, and never better than they are."""

from benchmarks.backup.runner import IdleRun
from benchmarks.backup.summary import judge
from benchmarks.contenders.contender import Run
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.summary import compare, summarise
from benchmarks.summary import Verdict

QUORATE, ZSTD, LOOP, LIMIT = (
    ContenderName.QUORATE,
    ContenderName.QUORATE_ZSTD,
    ContenderName.CONSUMER_LOOP,
    ContenderName.LIMIT,
)


def run(contender: ContenderName, repeat: int = 0, *, seconds: float = 1.0, cpu: float = 1.0, memory: int = 1) -> Run:
    return Run(
        case="backup-lz4",
        contender=contender,
        repeat=repeat,
        seconds=seconds,
        records=1,
        log_bytes=1_000_000,
        stored_bytes=500_000,
        cpu_seconds=cpu,
        cluster_cpu_seconds=1.0,
        other_cpu_seconds=0.0,
        peak_task_memory_bytes=memory,
        peak_tree_memory_bytes=memory,
    )


def test_ratio_is_the_median_over_runs_of_the_same_repeat() -> None:
    ours = [run(QUORATE, 0, seconds=1), run(QUORATE, 1, seconds=10), run(QUORATE, 2, seconds=1)]
    theirs = [run(LOOP, 2, seconds=2), run(LOOP, 1, seconds=30), run(LOOP, 0, seconds=8)]

    (comparison,) = compare([*ours, *theirs])

    assert (comparison.wall.lowest, comparison.wall.median, comparison.wall.highest) == (2, 3, 8)


def test_cpu_ratio_with_the_source_counts_the_brokers_on_both_sides() -> None:
    (comparison,) = compare([run(QUORATE, cpu=1), run(LOOP, cpu=5)])

    assert comparison.cpu.median == 5
    assert comparison.cpu_with_cluster.median == 3


def test_one_missed_figure_misses_the_goal_and_is_named() -> None:
    runs = [run(QUORATE, seconds=1, cpu=1), run(LOOP, seconds=6, cpu=2)]

    wall, cpu, *_ = judge(summarise(runs), compare(runs), [])

    assert wall.verdict is Verdict.MET
    assert cpu.verdict is Verdict.MISSED
    assert cpu.figures == ("backup-lz4, Quorate against consumer loop: 2.00",)


def test_backup_that_compresses_is_not_held_against_the_limit() -> None:
    runs = [run(QUORATE, seconds=1), run(ZSTD, seconds=100), run(LIMIT, seconds=0.7)]

    goals = judge(summarise(runs), compare(runs), [])

    limits = [goal.verdict for goal in goals if "the limit:" in goal.text]
    assert limits == [Verdict.MET, Verdict.MET]


def test_memory_is_judged_by_the_largest_task_of_all_repeats() -> None:
    runs = [run(QUORATE, 0, memory=100), run(QUORATE, 1, memory=300_000_000), run(QUORATE, 2, memory=100)]

    (memory,) = [goal for goal in judge(summarise(runs), [], []) if "memory" in goal.text]

    assert memory.verdict is Verdict.MISSED


def test_idle_partitions_are_judged_by_every_run() -> None:
    slow = IdleRun(partitions=3000, new_records=1, is_first=True, seconds=15.1)
    fast = IdleRun(partitions=3000, new_records=1, is_first=False, seconds=3.0)

    (slow_and_fast,) = [goal for goal in judge([], [], [slow, fast]) if "idle" in goal.text]
    (nothing,) = [goal for goal in judge([], [], []) if "idle" in goal.text]

    assert slow_and_fast.verdict is Verdict.MISSED
    assert slow_and_fast.figures == ("first run 5.03 ms",)
    assert nothing.verdict is Verdict.NOT_MEASURED
