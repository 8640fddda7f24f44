"""The table of goals: each is about rows that there are, and judged by these alone."""

import pytest

from benchmarks.backup.cases import Case as BackupCase
from benchmarks.contenders.contender import Run
from benchmarks.contenders.goals import BACKUP_GOALS, DATA_SOURCE_GOALS, RESTORE_GOALS, Goal, judge_all
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import Sizes, shapes_of
from benchmarks.contenders.summary import compare
from benchmarks.data_source.cases import Case as ReadCase
from benchmarks.restore.cases import cases_of
from benchmarks.summary import Verdict

SIZES = Sizes(topics_gb=(0.1, 1, 4))
NAMES = {
    BACKUP_GOALS: [BackupCase(shape=shape).name for shape in shapes_of(SIZES)],
    RESTORE_GOALS: [case.name for case in cases_of(SIZES)],
    DATA_SOURCE_GOALS: [ReadCase(shape=shape).name for shape in shapes_of(SIZES)],
}


def run(case: str, contender: ContenderName, *, seconds: float, cpu: float = 1.0) -> Run:
    return Run(
        case=case,
        contender=contender,
        repeat=0,
        seconds=seconds,
        records=1,
        log_bytes=1,
        stored_bytes=1,
        cpu_seconds=cpu,
        cluster_cpu_seconds=1.0,
        other_cpu_seconds=0.0,
        peak_task_memory_bytes=None,
        peak_tree_memory_bytes=1,
    )


@pytest.mark.parametrize("goals", NAMES)
def test_every_goal_is_about_rows_that_are_measured(goals: tuple[Goal, ...]) -> None:
    for goal in goals:
        for word in goal.cases:
            assert any(name.startswith(word) for name in NAMES[goals]), word


@pytest.mark.parametrize(
    ("case", "cpu", "verdict"),
    [
        ("backup-1rec", 2.0, Verdict.MET),
        ("backup-1rec", 1.9, Verdict.MISSED),
        ("backup-20rec", 3.9, Verdict.MISSED),
        ("backup-320rec", 5.0, Verdict.MET),
    ],
)
def test_small_batches_are_judged_beside_the_consumer_loop_per_cpu_second(
    case: str, cpu: float, verdict: Verdict
) -> None:
    runs = [
        run(case, ContenderName.QUORATE, seconds=1.0),
        run(case, ContenderName.CONSUMER_LOOP, seconds=0.1, cpu=cpu),
        run(case, ContenderName.CONNECTOR, seconds=0.1, cpu=0.1),
    ]
    (judged,) = [goal for goal in judge_all(BACKUP_GOALS, compare(runs)) if goal.verdict is not Verdict.NOT_MEASURED]

    assert judged.text.startswith(f"{case}: per CPU second")
    assert judged.verdict is verdict


def test_goals_are_about_topics_of_every_size() -> None:
    runs = [
        run("backup-lz4", ContenderName.QUORATE, seconds=1.0),
        run("backup-lz4", ContenderName.HASHED_LIMIT, seconds=0.9),
        run("backup-lz4-4gb", ContenderName.QUORATE, seconds=1.0),
        run("backup-lz4-4gb", ContenderName.HASHED_LIMIT, seconds=0.7),
    ]
    (judged,) = [goal for goal in judge_all(BACKUP_GOALS, compare(runs)) if goal.verdict is not Verdict.NOT_MEASURED]

    assert judged.verdict is Verdict.MISSED
    assert judged.figures == ("backup-lz4-4gb, Quorate against limit with SHA-256: 0.70",)


def test_backup_is_judged_beside_kafka_backup_in_both_measures() -> None:
    runs = [
        run("backup-lz4", ContenderName.QUORATE, seconds=1.0),
        run("backup-lz4", ContenderName.KAFKA_BACKUP, seconds=3.0, cpu=2.9),
    ]
    judged = [goal for goal in judge_all(BACKUP_GOALS, compare(runs)) if "kafka-backup" in goal.text]

    assert [goal.verdict for goal in judged] == [Verdict.MET, Verdict.MISSED]
