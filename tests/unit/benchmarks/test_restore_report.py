"""The restore's page: what it is held to, by which runs, and what is only told."""

import pytest

from benchmarks.contenders.contender import Run
from benchmarks.contenders.names import ContenderName
from benchmarks.contenders.shapes import Sizes, shapes_of
from benchmarks.contenders.summary import ContenderGoal
from benchmarks.restore.cases import QUICK, Case, TargetKind, cases_of
from benchmarks.restore.measure import whole_part
from benchmarks.restore.report import RestoreReport, make_report, render
from benchmarks.summary import Verdict
from tests.unit.benchmarks.test_backup_report import ENVIRONMENT

QUORATE, COMMAND, LOOP, LOOPS, LIMIT = (
    ContenderName.QUORATE,
    ContenderName.QUORATE_COMMAND,
    ContenderName.PRODUCER_LOOP,
    ContenderName.PRODUCER_LOOPS,
    ContenderName.LIMIT,
)
CLUSTER, SINK = "restore-cluster-lz4", "restore-sink-lz4"


def run(contender: ContenderName, *, seconds: float, cpu: float = 1.0, case: str = CLUSTER) -> Run:
    return Run(
        case=case,
        contender=contender,
        repeat=0,
        seconds=seconds,
        records=1,
        log_bytes=1_000_000,
        stored_bytes=500_000,
        cpu_seconds=cpu,
        cluster_cpu_seconds=1.0,
        other_cpu_seconds=0.0,
        peak_task_memory_bytes=1,
        peak_tree_memory_bytes=1,
    )


def report_of(*runs: Run, is_stand_in: bool = False) -> RestoreReport:
    return make_report(ENVIRONMENT, "4.2.0", connector_is_stand_in=is_stand_in, settings=QUICK, runs=runs)


def wall_goals(report: RestoreReport) -> tuple[ContenderGoal, ContenderGoal]:
    """Against each peer, and against the limit."""
    return report.goals[0], report.goals[1]


@pytest.mark.parametrize(("seconds", "verdict"), [(3.0, Verdict.MET), (2.9, Verdict.MISSED)])
def test_restore_is_to_be_three_times_as_fast_as_the_producer_loop(seconds: float, verdict: Verdict) -> None:
    against_peers, _ = wall_goals(report_of(run(QUORATE, seconds=1.0), run(LOOP, seconds=seconds)))

    assert against_peers.verdict is verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(0.6, Verdict.MET), (0.59, Verdict.MISSED)])
def test_restore_is_to_reach_six_tenths_of_what_the_target_takes(seconds: float, verdict: Verdict) -> None:
    _, against_limit = wall_goals(report_of(run(QUORATE, seconds=1.0), run(LIMIT, seconds=seconds)))

    assert against_limit.verdict is verdict


def test_goal_that_is_met_on_the_cluster_and_missed_on_the_sink_is_missed_and_says_where() -> None:
    report = report_of(
        run(QUORATE, seconds=1.0),
        run(LOOP, seconds=4.0),
        run(QUORATE, seconds=1.0, case=SINK),
        run(LOOP, seconds=2.0, case=SINK),
    )

    against_peers, _ = wall_goals(report)

    assert against_peers.verdict is Verdict.MISSED
    assert against_peers.figures == ("restore-sink-lz4, Quorate against producer loop: 2.00",)


def test_whole_command_and_loops_on_all_cores_are_told_and_not_judged() -> None:
    report = report_of(
        run(QUORATE, seconds=1.0),
        run(COMMAND, seconds=100.0),
        run(LOOP, seconds=4.0),
        run(LOOPS, seconds=0.5),
        run(LIMIT, seconds=1.0),
    )

    assert [goal.verdict for goal in wall_goals(report)] == [Verdict.MET, Verdict.MET]
    assert "| Quorate, whole command" in render(report)
    assert "| the producer loop on each core" in render(report)


def test_nothing_measured_is_no_goal_met() -> None:
    assert {goal.verdict for goal in report_of().goals} == {Verdict.NOT_MEASURED}


def test_page_says_which_figures_are_of_a_cluster_and_warns_of_a_stand_in() -> None:
    page = render(report_of(is_stand_in=True))

    assert "`restore-cluster-…`: into Quorate x 3" in page
    assert "`restore-sink-…`: into one node that takes every batch and keeps none" in page
    assert "not proven" in page
    assert "not proven" not in render(report_of())


def test_cases_have_the_names_by_which_they_are_chosen() -> None:
    shapes = ("lz4", "uncompressed", "1rec", "20rec", "320rec", "topics")
    assert [case.name for case in cases_of(Sizes())] == [
        f"restore-{target}-{shape}" for target in ("cluster", "sink") for shape in shapes
    ]


def test_backup_that_compresses_is_restored_only_where_producers_did_not() -> None:
    lz4, uncompressed = (Case(target=TargetKind.SINK, shape=shape) for shape in shapes_of(Sizes())[:2])

    assert not lz4.includes(ContenderName.QUORATE_ZSTD)
    assert uncompressed.includes(ContenderName.QUORATE_ZSTD)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "restore"),
        (("restore",), "restore"),
        (("restore-sink",), "restore-sink"),
        (("backup", "restore-cluster"), "restore-cluster"),
        (("restore-cluster-lz4",), None),
    ],
)
def test_only_what_is_whole_is_kept(words: tuple[str, ...], part: str | None) -> None:
    assert whole_part(words) == part
