"""A little chaos with real processes; ``make chaos`` runs longer."""

from pathlib import Path

from tests.chaos.run import Round, run_chaos


def test_nothing_is_lost_doubled_reordered_or_skipped_while_processes_are_killed_and_frozen(tmp_path: Path) -> None:
    report = run_chaos(tmp_path, Round(seed=1, seconds=15, least_faults=4))
    assert report.acknowledged > 1_000
    assert report.read > 1_000
    assert sum(report.faults.values()) >= 4
