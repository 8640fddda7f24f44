"""Whole clusters under faults: what was acknowledged stays, what was read stays, one offset holds one record.

More seeds: ``python -m tests.simulation.replication``.
"""

import pytest

from tests.simulation.replication.run import run_seed

SEEDS = range(1, 101)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_acknowledged_record_is_lost_changed_or_doubled(seed: int) -> None:
    report = run_seed(seed)
    assert report.acknowledged > 0
    assert report.read > 0


def test_a_seed_gives_the_same_run_again() -> None:
    assert run_seed(3).digest == run_seed(3).digest
